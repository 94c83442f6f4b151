// One MQTT.js client: node mqttjs.js OPTIONS TOPIC_FILTERS QOS, all as JSON. It takes messages to publish as lines of
// JSON on stdin until that ends, and tells what happens as lines of JSON on stdout. Payloads are in base64.
const mqtt = require('mqtt')
const [options, topicFilters, qos] = process.argv.slice(2).map((argument) => JSON.parse(argument))
const tell = (what, more) => process.stdout.write(JSON.stringify({ what, ...more }) + '\n')
const binary = (text) => Buffer.from(text, 'base64')

if (options.will) options.will.payload = binary(options.will.payload)
const client = mqtt.connect(options)
client.on('error', (error) => { console.error(error); process.exit(1) })
client.on('message', (topic, payload, packet) => {
  const { userProperties = {}, responseTopic = '', correlationData = Buffer.of() } = packet.properties ?? {}
  const pairs = Object.entries(userProperties).flatMap(([name, values]) => [values].flat().map((one) => [name, one]))
  tell('message', {
    topic,
    payload: payload.toString('base64'),
    qos: packet.qos,
    retain: packet.retain,
    userProperties: pairs,
    responseTopic,
    correlationData: correlationData.toString('base64')
  })
})
client.on('connect', async () => {
  if (topicFilters.length) await client.subscribeAsync(topicFilters, { qos })
  tell('ready')
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const { topic, payload, options } = JSON.parse(line)
    const properties = options.properties ?? {}
    if (properties.correlationData) properties.correlationData = binary(properties.correlationData)
    await client.publishAsync(topic, binary(payload), options)
    tell('published')
  }
  await client.endAsync()
})
