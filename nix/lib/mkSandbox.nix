# An environment artifact of Nix packages: a directory with bin/run and metadata.json, whichever backend makes bin/run.
{ pkgs, backends }:

{
  # Its name, also as an environment.
  name,
  # What is on PATH inside.
  packages,
  # What runs code: words without quotes, since no shell reads them.
  interpreter ? "bash -s",
  # How code reaches the interpreter: "arg", "pipe", or null for what the interpreter's last word tells.
  stdinMode ? null,
  backend ? "jail",
  # Limits of a run.
  timeout_seconds ? 30,
  memory_mb ? 512,
  description ? null,
  # Where a project is shown, and which of the caller's variables go in, when bin/run is called outside of Cofferdam.
  # A server's configuration says both for itself.
  projectMount ? "/project",
  inheritVars ? [ ],
  # Further arguments of the backend's own.
  backendOptions ? { },
}:

let
  backendImpl = backends.${backend} or (throw "Unknown backend: ${backend}");

  isArgument = builtins.match ".*-[ce]" interpreter != null;
  effectiveStdinMode =
    if stdinMode != null then
      stdinMode
    else if isArgument then
      "arg"
    else
      "pipe";

  standard = {
    inherit name packages interpreter projectMount inheritVars;
    stdinMode = effectiveStdinMode;
  };

  # Options are arguments of the backend's. One that is an argument of everybody's would make bin/run disagree with
  # metadata.json.
  clashing = builtins.attrNames (builtins.intersectAttrs standard backendOptions);
  wrapped = backendImpl.mkEnvironment (standard // backendOptions);

  # What Cofferdam refuses to load is refused before it is built.
  whole = number: builtins.isInt number && number >= 1;
  isName = text: builtins.match "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}" text != null;
  isVariable = text: builtins.match "[A-Za-z_][A-Za-z0-9_]*" text != null;
  isPlain = text: builtins.match "[^'\"\\$`]*[^ \t\n'\"\\$`][^'\"\\$`]*" text != null;
  rules = [
    {
      holds = isName name;
      told = "Not a name: ${name}; accepted: 1 to 64 letters, digits, `-`, `_` or `.`, of which the first is a letter or digit";
    }
    {
      holds = isPlain interpreter;
      told = "Not an interpreter: ${interpreter}; accepted: words without quotes, such as python3 -c";
    }
    {
      holds = builtins.elem effectiveStdinMode [
        "arg"
        "pipe"
      ];
      told = "Unknown stdinMode: ${effectiveStdinMode}; accepted: arg, pipe, null";
    }
    {
      holds = whole timeout_seconds && whole memory_mb;
      told = "timeout_seconds and memory_mb of ${name} must be whole numbers above 0";
    }
    {
      holds = builtins.all isVariable inheritVars;
      told = "inheritVars of ${name} must be names of variables";
    }
    {
      holds = clashing == [ ];
      told = "backendOptions of ${name} has arguments that stand for themselves: ${builtins.concatStringsSep ", " clashing}";
    }
  ];
  broken = builtins.filter (rule: !rule.holds) rules;

  # The interpreters whose state a session keeps.
  program = builtins.head (builtins.filter (text: builtins.isString text && text != "") (builtins.split "[ \t\n]+" interpreter));
  base = builtins.baseNameOf program;
  sessionAgent =
    if builtins.match "python[0-9.]*" base != null then
      "python"
    else if base == "bash" then
      "bash"
    else if base == "node" || base == "nodejs" then
      "node"
    else
      null;
  keepsState = sessionAgent != null && wrapped ? sessionRun;

  metadata = {
    inherit name backend interpreter timeout_seconds memory_mb;
    stdin_mode = effectiveStdinMode;
  }
  // (if description != null then { inherit description; } else { })
  // (if keepsState then { session_agent = sessionAgent; } else { });

  metadataFile = pkgs.writeTextFile {
    name = "metadata.json";
    text = builtins.toJSON metadata;
  };
in
if broken != [ ] then
  throw (builtins.head broken).told
else
  pkgs.runCommand "sandbox-${name}" { } ''
    mkdir -p $out/bin
    ln -s ${wrapped}/bin/run $out/bin/run
    ${if keepsState then "ln -s ${wrapped.sessionRun}/bin/session-run $out/bin/session-run" else ""}
    cp ${metadataFile} $out/metadata.json
  ''
