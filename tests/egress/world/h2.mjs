// HTTP/2 over TLS for the test world: says whom it served, and writes each request into the record.
import { appendFileSync, readFileSync } from 'node:fs'
import { createSecureServer } from 'node:http2'

const [certificate, key, record, port] = process.argv.slice(2)
const server = createSecureServer({ cert: readFileSync(certificate), key: readFileSync(key), allowHTTP1: false })
server.on('error', (error) => { console.error(error); process.exit(1) })
server.on('stream', (stream, headers) => {
  const host = headers[':authority']
  const entry = { on: 'app', what: 'request', tls: true, host, method: headers[':method'], target: headers[':path'], h2: true }
  appendFileSync(record, JSON.stringify(entry) + '\n')
  stream.respond({ ':status': 200 })
  stream.end(`delivered ${host} over h2: ${headers[':path']}\n`)
})
server.listen(Number(port), '::', () => console.log('ready'))
