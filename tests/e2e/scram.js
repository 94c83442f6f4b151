// SCRAM-SHA-256 with MQTT.js and Node's cryptography: node scram.js PORT USER PASSWORD. Prints one JSON line of what it
// saw: each AUTH and CONNACK with its Reason Code and whether the server has proven that it knows the user too.
const mqtt = require('mqtt')
const crypto = require('crypto')
const [port, user, password] = process.argv.slice(2)
const method = 'SCRAM-SHA-256'
const seen = []
const fail = (error) => { console.error(String(error)); process.exit(1) }
setTimeout(() => fail('timeout'), 30000).unref()

const hmac = (key, text) => crypto.createHmac('sha256', key).update(text).digest()
const attributes = (data) => Object.fromEntries(data.toString().split(',').map((part) => [part[0], part.slice(2)]))

class Login {
  constructor () {
    this.bare = `n=${user},r=${crypto.randomBytes(18).toString('base64')}`
  }

  first () {
    return Buffer.from(`n,,${this.bare}`)
  }

  final (challenge) {
    const { r, s, i } = attributes(challenge)
    const salted = crypto.pbkdf2Sync(password, Buffer.from(s, 'base64'), Number(i), 32, 'sha256')
    const key = hmac(salted, 'Client Key')
    const signed = `${this.bare},${challenge},c=biws,r=${r}`
    const signature = hmac(crypto.createHash('sha256').update(key).digest(), signed)
    this.expected = hmac(hmac(salted, 'Server Key'), signed).toString('base64')
    const proof = Buffer.from(key.map((byte, index) => byte ^ signature[index])).toString('base64')
    return Buffer.from(`c=biws,r=${r},p=${proof}`)
  }

  note (kind, packet) {
    const data = packet.properties?.authenticationData
    seen.push([kind, packet.reasonCode, data !== undefined && attributes(data).v === (this.expected ?? null)])
  }
}

let login = new Login()
const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
  protocolVersion: 5,
  reconnectPeriod: 0,
  clientId: 'js',
  properties: { authenticationMethod: method, authenticationData: login.first() }
})
client.handleAuth = (packet, done) => {
  login.note('auth', packet)
  if (packet.reasonCode === 0) return done(null, null), finish()
  const properties = { authenticationMethod: method, authenticationData: login.final(packet.properties.authenticationData) }
  done(null, { cmd: 'auth', reasonCode: 0x18, properties })
}
const report = () => { console.log(JSON.stringify(seen)); process.exit(0) }
const finish = async () => {
  await client.publishAsync('js/after', 'authenticated again', { qos: 1, retain: true })
  await client.endAsync()
  report()
}
client.on('error', (error) => { seen.push(['error', error.code, false]); report() })
client.on('connect', async (connack) => {
  login.note('connack', connack)
  await client.publishAsync('js/who', user, { qos: 1, retain: true })
  login = new Login()
  const properties = { authenticationMethod: method, authenticationData: login.first() }
  client._sendPacket({ cmd: 'auth', reasonCode: 0x19, properties })
})
