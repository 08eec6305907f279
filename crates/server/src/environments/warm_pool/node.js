// Run by a Node that is started before its call: it reads the code from standard input to the end, and then runs it as `-e`
// would, with the same global names. Code that is not a script restarts the process, where it can: none of it has run yet.
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
