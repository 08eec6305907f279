// The agent of a Node session: reads requests from descriptor 3, runs each in the one global context, answers when the code
// and all that it left in the event loop is done. Node marks every inherited descriptor close-on-exec when it starts.
'use strict';
(() => {
  const fs = require('fs');
  const vm = require('vm');
  const path = require('path');
  const { inspect } = require('util');
  const { Writable } = require('stream');
  const Module = require('module');
  const timers = require('timers');
  const CHANNEL = 3;
  const { writeSync } = fs;
  const { nextTick } = process;
  const { allocUnsafeSlow } = Buffer;
  const text = (fd, to) => {
    try {
      fs.closeSync(fd);
    } catch {
      // The code has closed it.
    }
    if (fs.openSync(to, 'w') !== fd) process.abort();
  };
  text(1, '/dev/null');
  text(2, '/dev/null');

  const moment = new Int32Array(new SharedArrayBuffer(4));
  const put = (fd, bytes) => {
    for (let at = 0; at < bytes.byteLength;) {
      try {
        at += writeSync(fd, bytes, at);
      } catch (error) {
        if (error.code !== 'EAGAIN') return error;
        Atomics.wait(moment, 0, 0, 1); // a program that got the descriptor has set it so
      }
    }
    return null;
  };
  // What process.stdout and process.stderr are. An interruption that comes while a stream of Node's writes leaves it so that
  // it never writes again; this one has no state, and so is never closed either.
  class Output extends Writable {
    constructor(fd) {
      super({ autoDestroy: false, emitClose: false });
      Object.assign(this, { fd, _type: 'fs', _isStdio: true });
      this.setMaxListeners(0); // an interrupted console leaves one behind
    }
    write(chunk, encoding, callback) {
      if (typeof encoding === 'function') [encoding, callback] = [null, encoding];
      const string = typeof chunk === 'string';
      if (!string && !ArrayBuffer.isView(chunk)) return super.write(chunk, encoding, callback); // which throws
      const bytes = string ? Buffer.from(chunk, encoding || this._writableState.defaultEncoding || 'utf8') : chunk;
      const error = put(this.fd, bytes);
      if (error === null) {
        if (typeof callback === 'function') nextTick(callback, null);
        return true;
      }
      nextTick(() => {
        if (typeof callback === 'function') callback(error);
        this.emit('error', error);
      });
      return false;
    }
    _write(chunk, encoding, callback) {
      callback(put(this.fd, chunk));
    }
    end(chunk, encoding, callback) {
      if (typeof chunk === 'function') [chunk, encoding, callback] = [null, null, chunk];
      if (typeof encoding === 'function') [encoding, callback] = [null, encoding];
      if (chunk !== null && chunk !== undefined) this.write(chunk, encoding);
      nextTick(() => {
        this.emit('finish');
        if (typeof callback === 'function') callback();
      });
      return this;
    }
    destroy() {
      return this;
    }
    destroySoon() {
      return this;
    }
  }
  for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
    const output = new Output(fd);
    Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => output });
  }

  // While one of these functions runs, what Node keeps for the whole process is half changed. An interruption passes by
  // `finally`, so that it shows where it came.
  let inside = 0;
  let loaded = 0;
  const guarded = (original) => new Proxy(original, {
    apply(target, self, values) {
      inside += 1;
      try {
        return Reflect.apply(target, self, values);
      } finally {
        inside -= 1;
        if (inside === 0) loaded = process.moduleLoadList.length;
      }
    },
  });
  const guard = (object, keys, part = 'value') => {
    for (const key of keys) {
      const about = Object.getOwnPropertyDescriptor(object, key);
      if (about && typeof about[part] === 'function') {
        Object.defineProperty(object, key, { ...about, [part]: guarded(about[part]) });
      }
    }
  };
  const methods = (object) => Reflect.ownKeys(object).filter((key) => key !== 'constructor' && key !== inspect.custom);
  const { setImmediate } = globalThis; // the code may put another in its place
  {
    const [timeout, immediate] = [setTimeout(() => {}, 1), setImmediate(() => {})];
    clearTimeout(timeout);
    clearImmediate(immediate);
    for (const one of [timeout, immediate]) guard(Object.getPrototypeOf(one), methods(Object.getPrototypeOf(one)));
    const names = Object.keys(timers).filter((name) => /^(set|clear)/.test(name));
    for (const name of names) {
      const global = globalThis[name] === timers[name];
      guard(timers, [name]);
      if (global) globalThis[name] = timers[name];
    }
    guard(require('timers/promises'), ['setTimeout', 'setInterval', 'setImmediate']);
    guard(Module.prototype, ['require']);
    guard(process, ['getBuiltinModule']);
    guard(process, ['stdin'], 'get');
    Module.syncBuiltinESMExports();
  }
  console.log(''); // loads what it needs
  console.error('%o', new Error(''));

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
  let { stackTraceLimit } = Error;
  const imports = (code) => /\bimport\s*\(/.test(code);
  globalThis.require = Module.createRequire(path.join(process.cwd(), 'call.js'));
  const show = (error) => {
    let told = `Uncaught ${inspect(error)}`;
    if (error instanceof Error && typeof error.stack === 'string') {
      const lines = error.stack.split('\n').filter((line) => !/^ +at Object\.apply \(\[eval\]:/.test(line));
      const ours = lines.findIndex((line) => /^ +at .*(sigintHandlersWrap|\(node:vm:|\(\[eval\]:)/.test(line));
      told = (ours > 0 ? lines.slice(0, ours) : lines).join('\n');
    }
    process.stderr.write(`${told}\n`);
  };
  // What an interruption leaves is whole again, or the session ends.
  const mend = () => {
    if (inside > 0 || loaded !== process.moduleLoadList.length || imports(request.code)) {
      put(2, Buffer.from('Warning: the interruption came while Node loaded a module or set a timer: the session ends\n'));
      process.reallyExit(130);
    }
    allocUnsafeSlow(1); // zeroes of new memory, which Node turns off for a moment
    if (Error.stackTraceLimit === 0) Error.stackTraceLimit = stackTraceLimit; // so does it with this
  };
  const failed = (error) => {
    if (request === null) return;
    const interrupted = error && error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
    exitCode = interrupted ? 130 : 1;
    pending = false;
    show(error);
    if (interrupted) mend();
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
    inside = 0;
    loaded = process.moduleLoadList.length;
    ({ stackTraceLimit } = Error);
    const name = `call ${number}`;
    let script;
    // What imports modules while it runs needs a loader, which the interpreter's own loop has.
    if (imports(request.code)) return awaiting(request.code, name);
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
