// What a Node that was started early runs: it waits for the code on standard input, until that ends, and then runs it as
// `-e` would, with the same global names. What is no script begins anew where the process can: nothing of it has run.
(() => {
  const fs = require('fs');
  const { Script, constants } = require('vm');
  const parts = [];
  for (;;) {
    const part = Buffer.allocUnsafe(65536);
    const length = fs.readSync(0, part, 0, part.length, null);
    if (length === 0) break;
    parts.push(part.subarray(0, length));
  }
  const code = Buffer.concat(parts).toString();
  process.execArgv[process.execArgv.length - 1] = code;
  process._eval = code;
  let script;
  try {
    script = new Script(code, { filename: '[eval]' });
  } catch (error) {
    if (error instanceof SyntaxError && typeof process.execve === 'function') {
      process.execve(process.execPath, [process.argv0, ...process.execArgv], process.env);
    }
    throw error;
  }
  script.runInThisContext();
})();
//# sourceURL=cofferdam:early
