// MQTT.js against the broker: node mqttjs.js PORT PROTOCOL. Prints one JSON line of what it saw.
const mqtt = require('mqtt')
const [port, protocol] = process.argv.slice(2).map(Number)
const options = { protocolVersion: protocol, reconnectPeriod: 0, connectTimeout: 10000 }
const seen = []
const fail = (error) => { console.error(String(error)); process.exit(1) }
setTimeout(() => fail('timeout'), 30000).unref()

const publisher = mqtt.connect(`mqtt://127.0.0.1:${port}`, options)
publisher.on('error', fail)
publisher.on('connect', async () => {
  for (const qos of [0, 1, 2]) await publisher.publishAsync(`js/${qos}`, `value ${qos}`, { qos, retain: true })
  await publisher.publishAsync('js/gone', 'x', { qos: 1, retain: true })
  await publisher.publishAsync('js/gone', '', { qos: 1, retain: true })
  const subscriber = mqtt.connect(`mqtt://127.0.0.1:${port}`, options)
  subscriber.on('error', fail)
  subscriber.on('message', async (topic, payload, packet) => {
    seen.push([topic, payload.toString(), packet.qos, packet.retain])
    if (topic === 'js/live') {
      console.log(JSON.stringify(seen))
      await subscriber.endAsync()
      await publisher.endAsync()
    } else if (seen.length === 3) {
      await publisher.publishAsync('js/live', 'now', { qos: 2, retain: false })
    }
  })
  await subscriber.subscribeAsync('js/#', { qos: 2 })
})
