# A stand-in for the package set: as much of its interface as this flake uses, out of programs that the host has, so that
# Nix evaluates and builds without network. Every builder is /bin/sh; nothing here is fit for use.
{
  outputs =
    { self }:
    let
      set =
        system:
        let
          build =
            name: script:
            derivation {
              inherit name system;
              builder = "/bin/sh";
              args = [
                "-c"
                ("set -e\nexport PATH=/usr/bin:/bin\n" + script)
              ];
            };
          # A package with these programs of the host's.
          host =
            name: programs:
            build name (
              "mkdir -p $out/bin\n"
              + builtins.concatStringsSep "" (map (program: "ln -s /usr/bin/${program} $out/bin/${program}\n") programs)
            );
        in
        {
          inherit system;
          runtimeShell = "/bin/bash";
          runCommand =
            name: variables: script:
            build name script;
          writeTextFile =
            {
              name,
              text,
              executable ? false,
              destination ? "",
            }:
            derivation {
              inherit name system text;
              passAsFile = [ "text" ];
              builder = "/bin/sh";
              args = [
                "-c"
                ''
                  set -e
                  export PATH=/usr/bin:/bin
                  target=$out${destination}
                  mkdir -p "''${target%/*}"
                  cp "$textPath" "$target"
                  ${if executable then "chmod +x \"$target\"" else ""}
                ''
              ];
            };
          rustPlatform.buildRustPackage =
            {
              pname,
              version,
              src,
              cargoLock,
              ...
            }:
            build "${pname}-${version}" ''
              test -f ${src}/Cargo.toml && test -f ${cargoLock.lockFile}
              mkdir -p $out/bin
              printf '#!/bin/sh\nexec cofferdam "$@"\n' > $out/bin/cofferdam
              chmod +x $out/bin/cofferdam
            '';
          python3 = host "python3" [ "python3" ];
          bash = host "bash" [ "bash" ];
          coreutils = host "coreutils" [ "cat" ];
          nodejs = host "nodejs" [ "node" ];
        };
    in
    {
      legacyPackages.x86_64-linux = set "x86_64-linux";
      legacyPackages.aarch64-linux = set "aarch64-linux";
    };
}
