// Does what its arguments name, one after the other; an error ends it. Prints `done` at the end.
const assert = require('assert');
const fs = require('fs');
const children = require('child_process');

const checks = {
  async files() {
    fs.mkdirSync('/tmp/n/a', { recursive: true });
    await fs.promises.writeFile('/tmp/n/a/f', 'x');
    assert.equal((await fs.promises.readFile('/tmp/n/a/f')).toString(), 'x');
    fs.renameSync('/tmp/n/a/f', '/tmp/n/a/g');
    fs.watch('/tmp').close();
    fs.rmSync('/tmp/n', { recursive: true });
  },
  copies() {
    fs.writeFileSync('/tmp/one', '1');
    fs.copyFileSync('/tmp/one', '/tmp/two');
    fs.chmodSync('/tmp/two', 0o600);
  },
  async modules() {
    const zlib = require('zlib');
    assert.equal(zlib.gunzipSync(zlib.gzipSync('q')).toString(), 'q');
    await new Promise((ok, no) => require('crypto').pbkdf2('a', 'b', 1000, 32, 'sha256', (e) => (e ? no(e) : ok())));
    await WebAssembly.compile(new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]));
    await import('node:fs/promises');
    assert(require('os').cpus().length > 0);
    process.stderr.write('');
  },
  workers() {
    const { Worker } = require('worker_threads');
    const code = 'require("worker_threads").parentPort.postMessage(5)';
    return Promise.all([1, 2, 3].map(() => new Promise((ok, no) => {
      const worker = new Worker(code, { eval: true });
      worker.on('message', (m) => (m === 5 ? ok() : no(new Error(m))));
      worker.on('error', no);
    })));
  },
  async children() {
    assert.equal(children.execSync('echo a | tr a b').toString(), 'b\n');
    assert.equal(children.spawnSync('/bin/true', [], { stdio: 'inherit' }).status, 0);
    const output = await new Promise((ok, no) => {
      let text = '';
      const child = children.spawn('/bin/cat');
      child.stdout.on('data', (data) => { text += data; });
      child.on('error', no);
      child.on('close', () => ok(text));
      child.stdin.end('in');
    });
    assert.equal(output, 'in');
  },
  messages() {
    fs.writeFileSync('/tmp/c.js', 'process.on("message", m => { process.send(m + 1); process.disconnect() })');
    return new Promise((ok, no) => {
      const child = children.fork('/tmp/c.js');
      child.on('message', (m) => (m === 2 ? ok() : no(new Error(m))));
      child.on('error', no);
      child.send(1);
    });
  },
  no_children() {
    assert.equal(children.spawnSync('/bin/true').error.code, 'EPERM');
  },
  web() {
    const http = require('http');
    return new Promise((ok, no) => {
      const server = http.createServer((request, response) => response.end('hey'));
      server.on('error', no);
      server.listen(0, 'localhost', () => {
        http.get({ port: server.address().port, host: 'localhost' }, (response) => {
          let text = '';
          response.on('data', (data) => { text += data; });
          response.on('end', () => { server.close(); text === 'hey' ? ok() : no(new Error(text)); });
        }).on('error', no);
      });
    });
  },
  path_socket() {
    const net = require('net');
    return new Promise((ok, no) => {
      const server = net.createServer((c) => c.end('u'));
      server.on('error', no);
      server.listen('/tmp/u.sock', () => net.connect('/tmp/u.sock').on('error', no).on('data', () => {
        server.close();
        ok();
      }));
    });
  },
};

(async () => {
  for (const name of process.argv.slice(2)) await checks[name]();
  console.log('done');
})().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
