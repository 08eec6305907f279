// The agent of a Node session: reads requests from descriptor 3, runs each in the one global context, answers when the code
// and all that it left in the event loop is done. Node marks every inherited descriptor close-on-exec when it starts.
'use strict';
(() => {
  const fs = require('fs');
  const vm = require('vm');
  const path = require('path');
  const { createRequire } = require('module');
  const CHANNEL = 3;
  const { setImmediate } = globalThis; // the code may put another in its place
  const text = (fd, to) => {
    fs.closeSync(fd);
    if (fs.openSync(to, 'w') !== fd) process.abort();
  };
  // Before anybody looks at process.stdout: what a stream is decided on then is what it stays.
  text(1, '/dev/null');
  text(2, '/dev/null');
  process.stdout.write('');
  process.stderr.write('');

  const read = (count) => {
    const into = Buffer.allocUnsafe(count);
    for (let at = 0; at < count;) {
      const n = fs.readSync(CHANNEL, into, at, count - at, null);
      if (n === 0) process.reallyExit(0);
      at += n;
    }
    return into;
  };
  const send = (reply) => {
    const body = Buffer.from(JSON.stringify(reply));
    const frame = Buffer.allocUnsafe(4 + body.length);
    frame.writeUInt32BE(body.length, 0);
    body.copy(frame, 4);
    for (let at = 0; at < frame.length;) at += fs.writeSync(CHANNEL, frame, at);
  };

  let request = null;
  let pending = false;
  let exitCode = 0;
  let number = 0;
  globalThis.require = createRequire(path.join(process.cwd(), 'call.js'));
  const show = (error) => {
    let told = `Uncaught ${require('util').inspect(error)}`;
    if (error instanceof Error && typeof error.stack === 'string') {
      const lines = error.stack.split('\n');
      const ours = lines.findIndex((line) => /^ +at .*(sigintHandlersWrap|\(node:vm:|\(\[eval\]:)/.test(line));
      told = (ours > 0 ? lines.slice(0, ours) : lines).join('\n');
    }
    process.stderr.write(`${told}\n`);
  };
  const failed = (error) => {
    if (request === null) return;
    exitCode = error && error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? 130 : 1;
    pending = false;
    show(error);
  };
  process.on('uncaughtException', failed);
  process.on('unhandledRejection', failed);
  // While synchronous code runs, node interrupts it by itself. What waits cannot be taken back: then all ends.
  process.on('SIGINT', () => {
    if (request !== null) process.reallyExit(130);
  });

  const options = (name) => ({ filename: name, breakOnSigint: true });
  let repl = null;
  const awaiting = (code, name) => {
    if (repl === null) {
      const { PassThrough } = require('stream');
      repl = require('repl').start({
        input: new PassThrough(), output: new PassThrough(), terminal: false, useGlobal: true, prompt: '',
        breakEvalOnSigint: true,
      });
      // Errors go to its domain, which shows them on its own output.
      if (repl._domain) repl._domain.removeAllListeners('error').on('error', failed);
    }
    pending = true;
    repl.eval(`${code}\n`, globalThis, name, (error) => {
      if (error) failed(error);
      pending = false;
    });
  };
  const execute = () => {
    number += 1;
    const name = `call ${number}`;
    let script;
    // What imports modules while it runs needs a loader, which the interpreter's own loop has.
    if (/\bimport\s*\(/.test(request.code)) return awaiting(request.code, name);
    try {
      script = new vm.Script(request.code, options(name));
    } catch (error) {
      if (error instanceof SyntaxError && /\bawait\b/.test(request.code)) return awaiting(request.code, name);
      return failed(error);
    }
    try {
      script.runInThisContext(options(name));
    } catch (error) {
      failed(error);
    }
  };

  // Node's thread for SIGINT keeps a signal that comes as a script ends, and interrupts the next script with it: one that
  // only waits.
  const settle = () => {
    const wait = 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20)';
    try {
      new vm.Script(wait, options('settle')).runInThisContext(options('settle'));
    } catch {
      // That was it.
    }
  };

  const next = () => {
    if (request !== null) {
      if (pending) {
        process.stderr.write('Warning: an await of the code never ends\n');
        exitCode = 13;
        pending = false;
      } else if (exitCode === 0 && process.exitCode) {
        exitCode = Number(process.exitCode) & 255;
      }
      process.exitCode = undefined;
      text(1, '/dev/null');
      text(2, '/dev/null');
      const id = request.id;
      request = null;
      send({ type: 'result', id, exit_code: exitCode });
    }
    for (;;) {
      const asked = JSON.parse(read(read(4).readUInt32BE(0)).toString());
      if (asked.type === 'execute') {
        text(1, `/proc/self/fd/${asked.streams[0]}`);
        text(2, `/proc/self/fd/${asked.streams[1]}`);
        exitCode = 0;
        // A turn of the loop first: an interruption that was meant for the call before goes there.
        setImmediate(() => {
          request = asked;
          execute();
        });
        return;
      }
      if (asked.type === 'settle') {
        settle();
        continue;
      }
      if (asked.type === 'shutdown') process.exit(0);
      send(asked.type === 'ping' ? { type: 'pong' } : { type: 'error', message: 'unknown request' });
    }
  };
  process.on('beforeExit', next);
  send({ type: 'ready' });
})();
