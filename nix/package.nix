# The command and the programs beside it, built from this repository by the lock file that it has.
{ pkgs, source }:

pkgs.rustPlatform.buildRustPackage {
  pname = "cofferdam";
  version = (builtins.fromTOML (builtins.readFile "${source}/Cargo.toml")).workspace.package.version;
  src = source;
  cargoLock.lockFile = "${source}/Cargo.lock";
  cargoBuildFlags = [
    "--package=cofferdam"
    "--package=cofferdam-compile"
  ];
  # Tests of walls need a kernel that Nix's own sandbox does not show; they are `cargo xtask test`'s.
  doCheck = false;
  meta = {
    description = "Runs code that nobody has vetted, walled in, and says exactly what happened";
    mainProgram = "cofferdam";
    platforms = [
      "x86_64-linux"
      "aarch64-linux"
    ];
  };
}
