// One MQTT.js client with a lasting Session: node mqttjs_following.js OPTIONS TOPIC_FILTER QOS, all as JSON. It connects
// again whenever its connection ends, and tells the payload of each message in a line on stdout.
const mqtt = require('mqtt')
const [options, topicFilter, qos] = process.argv.slice(2).map((argument) => JSON.parse(argument))

const client = mqtt.connect({ ...options, clean: false, resubscribe: false, reconnectPeriod: 100 })
client.on('error', (error) => console.error(error.message))
client.on('message', (topic, payload) => console.log(payload.toString()))
client.once('connect', async () => {
  await client.subscribeAsync(topicFilter, { qos })
  console.log('ready')
})
process.stdin.on('end', () => client.end(() => process.exit(0))).resume()
