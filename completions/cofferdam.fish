# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_cofferdam_global_optspecs
    string join \n h/help V/version
end

function __fish_cofferdam_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_cofferdam_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_cofferdam_using_subcommand
    set -l cmd (__fish_cofferdam_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c cofferdam -n "__fish_cofferdam_needs_command" -s h -l help -d 'Print help'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -s V -l version -d 'Print version'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "run" -d 'Run a program in a sandbox'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "eval" -d 'Run code in an environment (python, shell, node, ...); CODE - is standard input'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "agent" -d 'Run a coding agent in a sandbox'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "check" -d 'Check policies and profiles: print each completed, or what is wrong with it'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "export" -d 'Evaluate Nickel profiles, and print or store what they become'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "environment" -d 'List, show, check, build or reload the environments that eval and mcp know'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "skill" -d 'Sign, register, run and revoke skills: directories of files under a signed manifest'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "mcp" -d 'Serve environments to agents over MCP, on standard input and output or HTTP'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "audit" -d 'Verify and read the audit trail'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "doctor" -d 'Show what this host can enforce, and how to get the rest'
complete -c cofferdam -n "__fish_cofferdam_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l policy -d 'Start from this policy instead of the defaults' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l profile -d 'Start from this profile, or a stored one' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -s e -l env -d 'Set a variable; without VALUE, copy the caller\'s' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -s w -l workdir -d 'Directory inside in which the program starts' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l stdin -d 'Use TEXT as standard input; none closes it' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l id -d 'Name of the policy, for reports' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l description -d 'Free text about the policy' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -s v -l volume -d 'Show a host path; MODE ro (default), rw, cow' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l here -d 'Let it write the working directory, or a copy' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l tmpfs -d 'Mount an empty file system in memory' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l root -d 'What / is: host, minimal, interpreter, or DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l image -d 'What / is in a container: image, tarball, DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l deny -d 'A path that can be neither read nor written' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l protect -d 'A path that can be read but never written' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l network -d 'none (default), loopback, host or allow=HOST,…' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l allow -d 'A host, *.SUFFIX, CIDR or @BUNDLE it may reach' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l allow-private -d 'A host it may reach also at a private address' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l allow-encrypted-hello -d 'A host whose name the TLS greeting may hide' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l deny-host -d 'A host, *.SUFFIX or CIDR that stays out of reach' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l api -d 'An API of the host\'s side that is passed through' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l upstream-proxy -d 'Proxy through which allowed connections go out' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l network-limit -d 'A budget of its connections, such as down_mb=100' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l methods -d 'Methods its requests on plain HTTP may have' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l seccomp -d 'System calls: disabled, basic, standard or strict' -r -f -a "disabled\t''
basic\t''
standard\t''
strict\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l syscall-rule -d 'Refuse or kill on system calls, on top of the level' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l hostname -d 'Host name inside' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l memory -d 'Memory of the whole tree, such as 512m' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l cpus -d 'CPUs it may keep busy, such as 1.5' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l timeout -d 'Wall time, such as 30s, 5m or none' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l cpu-time -d 'CPU time of the whole tree, whole seconds' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l pids -d 'Processes and threads of the whole tree' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l open-files -d 'Open files per process' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l file-size -d 'Largest file it can write' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l tmpfs-size -d 'Its own scratch space: /tmp, home and /dev/shm' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l output-limit -d 'Output passed on per stream; the rest is dropped' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l layer-size -d 'Changes kept per copy-on-write volume' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l layer-files -d 'Changed files per copy-on-write volume, at least 2' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l backend -d 'What enforces the policy: jail, docker, podman, oci' -r -f -a "auto\t''
jail\t''
landlock\t''
bubblewrap\t''
nsjail\t''
seatbelt\t''
docker\t''
podman\t''
oci\t''
oci:crun\t''
oci:runc\t''
oci:youki\t''
oci:runsc\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l best-effort -d 'Start also where these cannot be held in full' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l on-violation -d 'What a refused call does: deny (default) or terminate' -r -f -a "deny\t''
terminate\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l audit -d 'Violations to record: off, error, warning, info or debug' -r -f -a "off\t''
error\t''
warning\t''
info\t''
debug\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l set -d 'Set a field of the profile' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l allow-import -d 'Let the profile import from DIR, too' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l profiles -d 'The profile store' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l keep-changes -d 'Keep what copy-on-write volumes changed in DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l grace -d 'Time to end by itself after Ctrl-C or SIGTERM' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l audit-trail -d 'Record start, refusals and end in the audit trail of DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l audit-secret -d 'Take the value of this variable of the program\'s out of what is recorded' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l for -d 'What a tool needs, such as npm, pip or cargo' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -s t -l tty -d 'Give it a terminal of its own; implies -i'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -s i -l interactive -d 'Pass standard input on, also a terminal\'s'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l read-only -d 'Make every volume read-only, the policy file\'s too'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l no-spawn -d 'No child process at all; threads still work'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l spawn -d 'Allow child processes, where the policy file does not'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l nested-sandboxes -d 'Let programs make sandboxes of their own inside'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l unix-sockets -d 'Allow Unix sockets made inside or found in volumes'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l no-unix-sockets -d 'Refuse Unix sockets, where the policy file does not'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l trace -d 'Report refused paths too; slower'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l no-trace -d 'Do not trace, where the policy file does'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l trust-profile -d 'Evaluate the profile without a sandbox around it'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l dry-run -d 'Print policy and plan; start nothing'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l json -d 'Print one outcome as JSON instead of the output'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -s q -l quiet -d 'Say nothing about limits and refusals'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -s h -l help -d 'Print this; --help says more, with defaults'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand run" -l cache -d 'Keep the caches of the tools of --for between runs in this directory'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l policy -d 'Start from this policy instead of the defaults' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l profile -d 'Start from this profile, or a stored one' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -s e -l env -d 'Set a variable; without VALUE, copy the caller\'s' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -s w -l workdir -d 'Directory inside in which the program starts' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l stdin -d 'Use TEXT as standard input; none closes it' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l id -d 'Name of the policy, for reports' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l description -d 'Free text about the policy' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -s v -l volume -d 'Show a host path; MODE ro (default), rw, cow' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l here -d 'Let it write the working directory, or a copy' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l tmpfs -d 'Mount an empty file system in memory' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l root -d 'What / is: host, minimal, interpreter, or DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l image -d 'What / is in a container: image, tarball, DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l deny -d 'A path that can be neither read nor written' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l protect -d 'A path that can be read but never written' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l network -d 'none (default), loopback, host or allow=HOST,…' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l allow -d 'A host, *.SUFFIX, CIDR or @BUNDLE it may reach' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l allow-private -d 'A host it may reach also at a private address' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l allow-encrypted-hello -d 'A host whose name the TLS greeting may hide' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l deny-host -d 'A host, *.SUFFIX or CIDR that stays out of reach' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l api -d 'An API of the host\'s side that is passed through' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l upstream-proxy -d 'Proxy through which allowed connections go out' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l network-limit -d 'A budget of its connections, such as down_mb=100' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l methods -d 'Methods its requests on plain HTTP may have' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l seccomp -d 'System calls: disabled, basic, standard or strict' -r -f -a "disabled\t''
basic\t''
standard\t''
strict\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l syscall-rule -d 'Refuse or kill on system calls, on top of the level' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l hostname -d 'Host name inside' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l memory -d 'Memory of the whole tree, such as 512m' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l cpus -d 'CPUs it may keep busy, such as 1.5' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l timeout -d 'Wall time, such as 30s, 5m or none' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l cpu-time -d 'CPU time of the whole tree, whole seconds' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l pids -d 'Processes and threads of the whole tree' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l open-files -d 'Open files per process' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l file-size -d 'Largest file it can write' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l tmpfs-size -d 'Its own scratch space: /tmp, home and /dev/shm' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l output-limit -d 'Output passed on per stream; the rest is dropped' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l layer-size -d 'Changes kept per copy-on-write volume' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l layer-files -d 'Changed files per copy-on-write volume, at least 2' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l backend -d 'What enforces the policy: jail, docker, podman, oci' -r -f -a "auto\t''
jail\t''
landlock\t''
bubblewrap\t''
nsjail\t''
seatbelt\t''
docker\t''
podman\t''
oci\t''
oci:crun\t''
oci:runc\t''
oci:youki\t''
oci:runsc\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l best-effort -d 'Start also where these cannot be held in full' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l on-violation -d 'What a refused call does: deny (default) or terminate' -r -f -a "deny\t''
terminate\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l audit -d 'Violations to record: off, error, warning, info or debug' -r -f -a "off\t''
error\t''
warning\t''
info\t''
debug\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l set -d 'Set a field of the profile' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l allow-import -d 'Let the profile import from DIR, too' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l profiles -d 'The profile store' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l keep-changes -d 'Keep what copy-on-write volumes changed in DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l grace -d 'Time to end by itself after Ctrl-C or SIGTERM' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l audit-trail -d 'Record start, refusals and end in the audit trail of DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l audit-secret -d 'Take the value of this variable of the program\'s out of what is recorded' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l file -d 'Run this file, at its own path' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l config -d 'The configuration that defines environments' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -s t -l tty -d 'Give it a terminal of its own; implies -i'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -s i -l interactive -d 'Pass standard input on, also a terminal\'s'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l read-only -d 'Make every volume read-only, the policy file\'s too'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l no-spawn -d 'No child process at all; threads still work'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l spawn -d 'Allow child processes, where the policy file does not'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l nested-sandboxes -d 'Let programs make sandboxes of their own inside'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l unix-sockets -d 'Allow Unix sockets made inside or found in volumes'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l no-unix-sockets -d 'Refuse Unix sockets, where the policy file does not'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l trace -d 'Report refused paths too; slower'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l no-trace -d 'Do not trace, where the policy file does'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l trust-profile -d 'Evaluate the profile without a sandbox around it'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l dry-run -d 'Print policy and plan; start nothing'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -l json -d 'Print one outcome as JSON instead of the output'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -s q -l quiet -d 'Say nothing about limits and refusals'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand eval" -s h -l help -d 'Print this; --help says more, with defaults'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -s e -l env -d 'Set a variable; without VALUE, copy the caller\'s' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l stdin -d 'Use TEXT as standard input; none closes it' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l id -d 'Name of the policy, for reports' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l description -d 'Free text about the policy' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -s v -l volume -d 'Show a host path; MODE ro (default), rw, cow' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l here -d 'Let it write the working directory, or a copy' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l tmpfs -d 'Mount an empty file system in memory' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l deny -d 'A path that can be neither read nor written' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l protect -d 'A path that can be read but never written' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l network -d 'none (default), loopback, host or allow=HOST,…' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l allow -d 'A host, *.SUFFIX, CIDR or @BUNDLE it may reach' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l allow-private -d 'A host it may reach also at a private address' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l allow-encrypted-hello -d 'A host whose name the TLS greeting may hide' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l deny-host -d 'A host, *.SUFFIX or CIDR that stays out of reach' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l api -d 'An API of the host\'s side that is passed through' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l upstream-proxy -d 'Proxy through which allowed connections go out' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l network-limit -d 'A budget of its connections, such as down_mb=100' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l methods -d 'Methods its requests on plain HTTP may have' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l seccomp -d 'System calls: disabled, basic, standard or strict' -r -f -a "disabled\t''
basic\t''
standard\t''
strict\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l syscall-rule -d 'Refuse or kill on system calls, on top of the level' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l hostname -d 'Host name inside' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l memory -d 'Memory of the whole tree, such as 512m' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l cpus -d 'CPUs it may keep busy, such as 1.5' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l timeout -d 'Wall time, such as 30s, 5m or none' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l cpu-time -d 'CPU time of the whole tree, whole seconds' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l pids -d 'Processes and threads of the whole tree' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l open-files -d 'Open files per process' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l file-size -d 'Largest file it can write' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l tmpfs-size -d 'Its own scratch space: /tmp, home and /dev/shm' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l output-limit -d 'Output passed on per stream; the rest is dropped' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l layer-size -d 'Changes kept per copy-on-write volume' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l layer-files -d 'Changed files per copy-on-write volume, at least 2' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l backend -d 'What enforces the policy: jail, docker, podman, oci' -r -f -a "auto\t''
jail\t''
landlock\t''
bubblewrap\t''
nsjail\t''
seatbelt\t''
docker\t''
podman\t''
oci\t''
oci:crun\t''
oci:runc\t''
oci:youki\t''
oci:runsc\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l best-effort -d 'Start also where these cannot be held in full' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l on-violation -d 'What a refused call does: deny (default) or terminate' -r -f -a "deny\t''
terminate\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l audit -d 'Violations to record: off, error, warning, info or debug' -r -f -a "off\t''
error\t''
warning\t''
info\t''
debug\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l profiles -d 'The profile store' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l keep-changes -d 'Keep what copy-on-write volumes changed in DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l grace -d 'Time to end by itself after Ctrl-C or SIGTERM' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l audit-trail -d 'Record start, refusals and end in the audit trail of DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l audit-secret -d 'Take the value of this variable of the program\'s out of what is recorded' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l policy -d 'Start from this policy instead of the defaults' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l profile -d 'Start from this profile, or a stored one' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l image -d 'What / is in a container: image, tarball, DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l root -d 'What / is: host, minimal, interpreter, or DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -s w -l workdir -d 'Directory inside in which the program starts' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l set -d 'Set a field of the profile' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l allow-import -d 'Let the profile import from DIR, too' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -s t -l tty -d 'Give it a terminal of its own; implies -i'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -s i -l interactive -d 'Pass standard input on, also a terminal\'s'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l read-only -d 'Make every volume read-only, the policy file\'s too'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l no-spawn -d 'No child process at all; threads still work'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l spawn -d 'Allow child processes, where the policy file does not'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l nested-sandboxes -d 'Let programs make sandboxes of their own inside'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l unix-sockets -d 'Allow Unix sockets made inside or found in volumes'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l no-unix-sockets -d 'Refuse Unix sockets, where the policy file does not'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l trace -d 'Report refused paths too; slower'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l no-trace -d 'Do not trace, where the policy file does'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l dry-run -d 'Print policy and plan; start nothing'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l json -d 'Print one outcome as JSON instead of the output'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -s q -l quiet -d 'Say nothing about limits and refusals'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -s h -l help -d 'Print this; --help says more, with defaults'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand agent" -l trust-profile -d 'Evaluate the profile without a sandbox around it'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand check" -l set -d 'Set a field of the profile' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand check" -l allow-import -d 'Let the profile import from DIR, too' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand check" -l profiles -d 'The profile store' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand check" -l trust-profile -d 'Evaluate the profile without a sandbox around it'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand check" -l json -d 'Print one JSON array'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -l format -d 'policy (default), nsjail, nsjail-text, seatbelt or raw' -r -f -a "policy\t''
nsjail\t''
nsjail-text\t''
seatbelt\t''
raw\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -l encoding -d 'json (default), yaml or toml, for what is data' -r -f -a "json\t''
yaml\t''
toml\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -s o -l output -d 'Write into FILE, all of it or nothing' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -l id -d 'Store it under this id, not the profile\'s own' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -l set -d 'Set a field of the profile' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -l allow-import -d 'Let the profile import from DIR, too' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -l profiles -d 'The profile store' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -l store -d 'Keep policy, nsjail and Seatbelt files in the profile store'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -l trust-profile -d 'Evaluate the profile without a sandbox around it'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand environment" -l set -d 'Set a field of the profile' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand environment" -l allow-import -d 'Let the profile import from DIR, too' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand environment" -l profiles -d 'The profile store' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand environment" -l config -d 'The configuration that defines environments' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand environment" -l trust-profile -d 'Evaluate the profile without a sandbox around it'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand environment" -l json -d 'Print one JSON value'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand environment" -l all -d 'List hidden definitions, too'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand environment" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l registry -d 'Where skills are registered' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l key -d 'sign: the publisher\'s key' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l config -d 'run: what the operator grants at most, as TOML or JSON' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l backend -d 'run: what holds it: auto, jail, docker, podman, oci, …' -r -f -a "auto\t''
jail\t''
landlock\t''
bubblewrap\t''
nsjail\t''
seatbelt\t''
docker\t''
podman\t''
oci\t''
oci:crun\t''
oci:runc\t''
oci:youki\t''
oci:runsc\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l best-effort -d 'run: start also where these limits cannot be held in full' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l input -d 'run: show this file to the skill, read-only, as /input/NAME; may be given again' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l output -d 'run: keep the files that the skill writes below /output in DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l audit-trail -d 'The trail in which it is recorded' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l audit-secret -d 'run: take the value of this variable out of what is recorded' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l files -d 'sign: list the files of DIR in the manifest first, as they are'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -s i -l interactive -d 'run: pass standard input on; it is closed otherwise'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l dry-run -d 'run: print policy and plan; start nothing'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l json -d 'Print one JSON object; of run, its outcome'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -l result -d 'run: print {success, exitCode, stdout, stderr, durationMs} as JSON'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -s q -l quiet -d 'run: say nothing about limits and refusals'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand skill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l config -d 'The configuration that defines environments' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l http -d 'Listen here for streamable HTTP, at /mcp' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l token-file -d 'File with the bearer token; made when it is not there' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l allow-host -d 'A name under which callers reach the server, besides loopback\'s' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l allow-origin -d 'An origin whose pages may call, as https://app.example:443; none by default' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l tools -d 'Offer these tools besides run: upload and download, for files of a session; list, of environments; sessions, to see and end one\'s own' -r -f -a "download\t''
list\t''
sessions\t''
upload\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l max-runs -d 'Most runs at a time' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l max-queue -d 'Most calls that wait for a run to end' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l early -d 'Interpreters that are started before their calls, for each environment in use: 1 or 0' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -l audit-trail -d 'Record runs, sessions and their calls in the audit trail of DIR' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -s v -l verbose -d 'Say more on standard error; never the code'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -f -a "install" -d 'Put the server into a client\'s configuration'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and not __fish_seen_subcommand_from install help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -l client -d 'Whose configuration' -r -f -a "claude-desktop\t''
claude-code\t''
cursor\t''
vscode\t''
zed\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -l config -d 'The configuration that defines environments' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -l tools -d 'Have it offer these tools besides run: upload, download, list, sessions' -r -f -a "download\t''
list\t''
sessions\t''
upload\t''"
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -l name -d 'What the server is called there' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -l all -d 'Of all clients that are found, as without --client'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -l project -d 'Into the configuration of the project in this directory, for all who share it'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -l remove -d 'Take it out again'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -l dry-run -d 'Show what would change, and write nothing'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -s y -l yes -d 'Do not ask'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from install" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from help" -f -a "install" -d 'Put the server into a client\'s configuration'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand mcp; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l dir -d 'The trail\'s directory' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l key -d 'verify: the public key that checkpoints must be signed by; checkpoint: the key\'s file' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l anchor -d 'verify: a file with anchored checkpoints; checkpoint: file:PATH, command:PROGRAM or syslog' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l trail -d 'verify: the trail that it must be, which verify prints' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l run -d 'Only records of this run; eight characters or more of its id are enough' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l skill -d 'Only records of this skill' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l kind -d 'Only records of this kind; may be given again' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l since -d 'Only records from then on, such as 2026-05-01T12:00:00Z, or 2026-05-01' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l until -d 'Only records until then' -r
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -s f -l follow -d 'tail: go on with what comes'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -l json -d 'Print JSON: one object, or one record a line'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand audit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand doctor" -l json -d 'Print one JSON object'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand doctor" -s v -l verbose -d 'Print every mechanism with its evidence, and why each backend falls short of each field'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "run" -d 'Run a program in a sandbox'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "eval" -d 'Run code in an environment (python, shell, node, ...); CODE - is standard input'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "agent" -d 'Run a coding agent in a sandbox'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "check" -d 'Check policies and profiles: print each completed, or what is wrong with it'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "export" -d 'Evaluate Nickel profiles, and print or store what they become'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "environment" -d 'List, show, check, build or reload the environments that eval and mcp know'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "skill" -d 'Sign, register, run and revoke skills: directories of files under a signed manifest'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "mcp" -d 'Serve environments to agents over MCP, on standard input and output or HTTP'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "audit" -d 'Verify and read the audit trail'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "doctor" -d 'Show what this host can enforce, and how to get the rest'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and not __fish_seen_subcommand_from run eval agent check export environment skill mcp audit doctor help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cofferdam -n "__fish_cofferdam_using_subcommand help; and __fish_seen_subcommand_from mcp" -f -a "install" -d 'Put the server into a client\'s configuration'
