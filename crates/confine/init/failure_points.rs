//! The steps in which init builds a sandbox, and the points of each at which it can fail, by name.
//!
//! A failure crosses to the owner as a [`FailurePoint`] and an errno. Compiled into init, which reports points, and into the
//! library, whose users decode them. Owns no text: words are the owner's. Messages show the numbers ("part 3"), so a point
//! keeps its own; a test holds that no two points share one.

/// Where a step failed: at one of its points, or on one of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePoint {
    /// The step, such as [`IDS`].
    pub step: u16,
    /// Which point or item of the step.
    pub index: u32,
}

/// Points of one kind, one for each item of a list, such as the mounts of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items {
    /// The step.
    pub step: u16,
    /// The point of item 0.
    pub first: u32,
    /// The first number after the last possible item's.
    pub end: u32,
}

impl Items {
    /// The point of an item.
    pub const fn item(self, i: usize) -> FailurePoint {
        FailurePoint { step: self.step, index: self.first + i as u32 }
    }

    /// The item of a point of this kind.
    pub const fn index_of(self, point: FailurePoint) -> Option<usize> {
        if point.step == self.step && self.first <= point.index && point.index < self.end {
            Some((point.index - self.first) as usize)
        } else {
            None
        }
    }
}

/// Declares steps: the number of each as a constant, and a module of that name with its points and kinds of items.
macro_rules! steps {
    ($(
        $(#[$doc:meta])*
        $number_of:ident $step:ident = $number:literal {
            $($(#[$point_doc:meta])* $point:ident = $index:expr;)*
        } each {
            $($(#[$items_doc:meta])* $items:ident = $first:expr, $end:expr;)*
        }
    )+) => {
        $($(#[$doc])* pub const $number_of: u16 = $number;)+
        $(
            $(#[$doc])*
            pub mod $step {
                #[allow(unused_imports, reason = "some steps have no points, or no items")]
                use super::{Items, FailurePoint};
                $($(#[$point_doc])* pub const $point: FailurePoint = FailurePoint { step: $number, index: $index };)*
                $($(#[$items_doc])* pub const $items: Items = Items { step: $number, first: $first, end: $end };)*
            }
        )+

        /// Every step with its number, and the names and numbers of its points and items.
        #[cfg(test)]
        #[allow(clippy::type_complexity, reason = "read by one test")]
        const ALL: &[(&str, u16, &[(&str, u32, u32)])] = &[
            $((stringify!($step), $number, &[
                $((stringify!($point), $index, $index + 1),)*
                $((stringify!($items), $first, $end),)*
            ]),)+
        ];
    };
}

/// Most mounts in one plan.
pub const MAX_MOUNTS: u32 = 16384;
/// The first number of [`capture::SOCKET`].
const SOCKETS_FROM: u32 = 1 << 16;
/// The first number after those.
const SOCKETS_END: u32 = 1 << 17;

steps! {
    /// Receiving and reading the plan.
    PLAN plan = 1 {
        /// Reading its length.
        READ = 0;
        /// It is not a plan of this version.
        INVALID = 1;
        /// Mapping it.
        MAP = 2;
        /// Its arguments are too many.
        ARGUMENTS = 10;
        /// Its variables are too many.
        VARIABLES = 11;
        /// Receiving it, and putting its descriptors into their places.
        RECEIVE = 20;
        /// Waiting for the plan of a staged sandbox's run.
        WAIT = 21;
        /// Closing the one before.
        CLOSE_PREVIOUS = 22;
    } each {}
    /// A session of init's own, and what it inherits from the owner's process.
    SESSION session = 2 {
        /// Closing what stands in the plan's place.
        CLOSE_PLAN = 98;
        /// Marking every descriptor close-on-exec.
        CLOSE_ON_EXEC = 99;
        /// Blocking signals.
        BLOCK_SIGNALS = 100;
        /// setsid(2).
        SETSID = 101;
        /// Becoming a subreaper.
        SUBREAPER = 104;
        /// umask(2).
        UMASK = 105;
        /// Reading the scheduling policy.
        GET_SCHEDULER = 106;
        /// Leaving a real-time policy.
        SET_SCHEDULER = 107;
        /// Reading the nice value.
        GET_PRIORITY = 108;
        /// Leaving a raised priority.
        SET_PRIORITY = 109;
        /// Leaving the real-time class of I/O.
        SET_IO_PRIORITY = 110;
        /// Unblocking the payload's signals.
        UNBLOCK_SIGNALS = 111;
        /// Reading the adjustment for the out-of-memory killer.
        READ_OOM_ADJUSTMENT = 112;
        /// Taking back a negative one.
        WRITE_OOM_ADJUSTMENT = 113;
        /// Closing its file.
        CLOSE_OOM_ADJUSTMENT = 114;
        /// umask(2) once init makes files for the payload.
        UMASK_FOR_PAYLOAD = 115;
        /// setsid(2) of the payload.
        PAYLOAD_SETSID = 116;
        /// Putting a session's channel into its place.
        CHANNEL = 120;
        /// Putting a session's further descriptors into their places.
        INHERITED = 121;
        /// Closing what is left of the plan's descriptors.
        CLOSE_REST = 122;
        /// Closing init's copy of the channel.
        CLOSE_CHANNEL = 123;
        /// Closing init's copies of the further descriptors.
        CLOSE_INHERITED = 124;
    } each {
        /// Setting a signal's disposition, by the signal's number.
        SIGNAL = 0, 65;
    }
    /// Joining a cgroup, or waiting for the owner's release.
    SYNC sync = 3 {
        /// Waiting for the release.
        RELEASE = 0;
        /// Closing the control socket before the payload starts.
        CLOSE = 1;
        /// Closing it after the release of a payload that was started early.
        CLOSE_AFTER_RELEASE = 2;
    } each {
        /// Joining a cgroup of version 1.
        JOIN = 10, 1000;
        /// Closing its file.
        CLOSE_JOINED = 1000, 2000;
    }
    /// User and group ids, and whether memory can be read.
    IDS ids = 4 {
        /// Refusing setgroups(2) in the user namespace.
        DENY_SETGROUPS = 0;
        /// Writing the map of users.
        UID_MAP = 1;
        /// Writing the map of groups.
        GID_MAP = 2;
        /// Leaving all supplementary groups of the namespace.
        CLEAR_GROUPS = 3;
        /// Becoming the group inside.
        SET_GROUP = 4;
        /// Becoming the user inside.
        SET_USER = 5;
        /// Without a user namespace: leaving all supplementary groups.
        DROP_GROUPS = 6;
        /// Without a user namespace: becoming the group outside.
        DROP_GROUP = 7;
        /// Without a user namespace: becoming the user outside.
        DROP_USER = 8;
        /// Making init's memory unreadable.
        UNDUMPABLE = 9;
        /// In a container, another user than was asked for.
        WRONG_USER = 20;
        /// In a container, another group than was asked for.
        WRONG_GROUP = 21;
        /// In a container, a supplementary group that was not asked for.
        EXTRA_GROUPS = 22;
        /// Reading the user ids.
        GET_USER = 23;
        /// Reading the group ids.
        GET_GROUP = 24;
        /// Reading the supplementary groups.
        GET_GROUPS = 25;
        /// Covering init's files below /proc.
        COVER_PROC = 29;
        /// Keeping capabilities across a change of user.
        KEEP_CAPABILITIES = 30;
        /// Becoming init's own group.
        INIT_GROUP = 31;
        /// Becoming init's own user.
        INIT_USER = 32;
        /// Keeping capabilities no longer.
        KEEP_NO_CAPABILITIES = 33;
        /// Capabilities of init's own user.
        INIT_CAPABILITIES = 34;
        /// Making init's memory unreadable again.
        INIT_UNDUMPABLE = 35;
        /// The payload becomes the program's group.
        PAYLOAD_GROUP = 36;
        /// The payload becomes the program's user.
        PAYLOAD_USER = 37;
    } each {}
    /// The session keyring.
    KEYRING keyring = 5 {} each {}
    /// Nested namespaces.
    USERNS userns = 6 {
    } each {
        /// Bounding the number of a kind of namespaces.
        LIMIT = 0, 8;
    }
    /// The loopback interface.
    LOOPBACK loopback = 7 {
        /// Making a socket to ask by.
        SOCKET = 0;
        /// Reading the interface's flags.
        GET_FLAGS = 1;
        /// Setting them.
        SET_FLAGS = 2;
        /// Closing the socket.
        CLOSE = 3;
    } each {}
    /// Mount propagation.
    PRIVATE private = 8 {
        /// Making every mount private.
        SET = 0;
    } each {}
    /// The sources of mounts.
    SOURCE source = 9 {
        /// The mounts are too many.
        TOO_MANY = crate::wire::step::MAX_MOUNTS;
    } each {
        /// Opening the source of a mount.
        MOUNT = 0, crate::wire::step::MAX_MOUNTS;
    }
    /// The scratch file system.
    SCRATCH scratch = 10 {
        /// Making it.
        CREATE = 0;
        /// Making the directory of the new root.
        ROOT = 1;
        /// Making the directory that masks directories.
        MASK_DIRECTORY = 2;
        /// Making the file that masks everything else.
        MASK_FILE = 3;
        /// Closing that file.
        CLOSE_MASK_FILE = 4;
        /// Mounting it.
        ATTACH = 5;
        /// No directory to mount it on.
        NO_DIRECTORY = 6;
        /// umask(2) while the root is built.
        UMASK = 10;
    } each {}
    /// The mounts.
    MOUNT mount = 11 {
    } each {
        /// A mount.
        MOUNT = 0, crate::wire::step::MAX_MOUNTS;
    }
    /// The change of the root.
    PIVOT pivot = 12 {
        /// Entering the new root.
        ENTER_NEW = 0;
        /// pivot_root(2).
        PIVOT = 1;
        /// Detaching the old root.
        DETACH = 2;
        /// Entering `/`.
        ENTER_ROOT = 3;
        /// umask(2).
        UMASK = 4;
        /// Opening the old root.
        OPEN_OLD = 5;
        /// Entering the old root again.
        ENTER_OLD = 6;
        /// Closing it.
        CLOSE_OLD = 7;
    } each {}
    /// The host name.
    HOSTNAME hostname = 13 {
        /// sethostname(2).
        SET = 0;
    } each {}
    /// The pseudo-terminal.
    TERMINAL terminal = 14 {
        /// Opening the master.
        OPEN = 0;
        /// Unlocking the slave.
        UNLOCK = 1;
        /// Opening the slave.
        OPEN_SLAVE = 2;
        /// Setting its size.
        SIZE = 3;
        /// Making the slave the standard streams.
        STREAMS = 4;
        /// Closing the slave.
        CLOSE_SLAVE = 5;
        /// Sending the master to the owner.
        SEND = 6;
        /// Closing init's copy of the master.
        CLOSE = 7;
        /// Making it the payload's controlling terminal.
        CONTROL = 10;
    } each {}
    /// The path guards.
    GUARD guard = 15 {
    } each {
        /// Opening a guarded directory.
        DIRECTORY = 0, u32::MAX;
    }
    /// The payload's process.
    FORK fork = 16 {
        /// clone(2), with init waiting.
        CLONE = 0;
        /// Closing init's copy of the Landlock ruleset.
        CLOSE_RULESET = 1;
        /// clone(2), with init awake for the one exec.
        CLONE_AWAKE = 2;
        /// pidfd_open(2).
        PIDFD = 3;
        /// Growing the table of descriptors.
        GROW = 4;
        /// Closing what grew it.
        CLOSE_GROWN = 5;
        /// Waiting for the one exec.
        POLL = 6;
        /// Closing the pidfd.
        CLOSE_PIDFD = 7;
    } each {}
    /// The rlimits.
    RLIMIT rlimit = 17 {
        /// Reading the limit of open files.
        GET_OPEN_FILES = 100;
        /// Raising it.
        RAISE_OPEN_FILES = 101;
    } each {
        /// A limit of the plan.
        LIMIT = 0, 100;
    }
    /// The working directory.
    CWD cwd = 18 {
        /// Entering it.
        ENTER = 0;
    } each {}
    /// The capabilities.
    CAPS caps = 19 {
        /// Clearing the ambient set.
        CLEAR_AMBIENT = 100;
        /// Emptying the other sets.
        CLEAR = 101;
    } each {
        /// Dropping a capability from the bounding set, by its number.
        BOUNDING = 0, 64;
    }
    /// `no_new_privs`.
    NNP nnp = 20 {
        /// The payload's.
        PAYLOAD = 0;
        /// Init's, before its own Landlock domain.
        INIT = 1;
    } each {}
    /// The Landlock ruleset.
    LANDLOCK landlock = 21 {
        /// Making it.
        CREATE = 0;
        /// Restricting the payload.
        RESTRICT_PAYLOAD = 1;
        /// Restricting init.
        RESTRICT_INIT = 2;
        /// Closing it.
        CLOSE = 3;
        /// Making one of scopes alone.
        CREATE_SCOPES = 4;
    } each {}
    /// The Landlock rules; in a container, the identities of what is mounted.
    LANDRULE landrule = 22 {
    } each {
        /// A rule, or a mount that is looked at.
        RULE = 0, u32::MAX;
    }
    /// The seccomp filter.
    SECCOMP seccomp = 23 {
        /// Installing one without a listener.
        INSTALL = 0;
        /// Installing one with a listener.
        INSTALL_WITH_LISTENER = 1;
    } each {}
    /// Finding the program and executing it.
    EXEC exec = 25 {
    } each {
        /// A path at which the program is looked for.
        CANDIDATE = 0, u32::MAX;
    }
    /// Init itself.
    INIT init = 26 {
        /// It panicked.
        PANIC = 0;
        /// Closing the payload's streams.
        CLOSE_STREAMS = 1;
        /// Clearing the ambient set.
        CLEAR_AMBIENT = 3;
        /// Dropping the capabilities that supervision does not need.
        DROP_CAPABILITIES = 4;
        /// signalfd(2).
        SIGNALFD = 5;
        /// poll(2).
        POLL = 6;
    } each {}
    /// Routes, rules and sockets of a captured network; comes after `LOOPBACK`.
    CAPTURE capture = 27 {
        /// Sending the sockets to the owner.
        SEND = crate::wire::step::SOCKETS_END;
        /// Closing init's copies of them.
        CLOSE = crate::wire::step::SOCKETS_END + 1;
    } each {
        /// A netlink message, by its number.
        MESSAGE = 0, crate::wire::step::SOCKETS_FROM;
        /// A socket: [`SocketPart::COUNT`](super::SocketPart::COUNT) numbers each; see [`socket_part`](super::socket_part).
        SOCKET = crate::wire::step::SOCKETS_FROM, crate::wire::step::SOCKETS_END;
    }
    /// Counting what sockets hold; the owner's step as well.
    SOCKETS sockets = 28 {
        /// Sending the socket that is asked about them.
        SEND = 0;
        /// Closing init's copy of it.
        CLOSE = 1;
    } each {}
}

/// What is done to make a socket of a captured network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketPart {
    /// socket(2).
    Create,
    /// setsockopt(2).
    Option,
    /// Attaching its filter.
    Filter,
    /// bind(2).
    Bind,
    /// listen(2).
    Listen,
}

impl SocketPart {
    /// Numbers for each socket, of which the last ones are not used.
    pub const COUNT: usize = 8;

    /// All of them, in the order of their numbers.
    pub const ALL: [SocketPart; 5] =
        [SocketPart::Create, SocketPart::Option, SocketPart::Filter, SocketPart::Bind, SocketPart::Listen];
}

/// The point of a part of socket `i`.
pub const fn socket_part(i: usize, part: SocketPart) -> FailurePoint {
    capture::SOCKET.item(i * SocketPart::COUNT + part as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_steps_and_no_two_points_of_a_step_share_a_number() {
        for (i, (step, number, points)) in ALL.iter().enumerate() {
            for (other, other_number, _) in &ALL[..i] {
                assert_ne!(number, other_number, "{step} and {other}");
            }
            for (k, (point, first, end)) in points.iter().enumerate() {
                assert!(first < end, "{step}: {point} has no number");
                for (other, other_first, other_end) in &points[..k] {
                    assert!(end <= other_first || other_end <= first, "{step}: {point} and {other}");
                }
            }
        }
    }

    #[test]
    fn items_and_parts_are_found_by_their_numbers() {
        assert_eq!(mount::MOUNT.index_of(mount::MOUNT.item(7)), Some(7));
        assert_eq!(mount::MOUNT.index_of(source::MOUNT.item(7)), None);
        assert_eq!(caps::BOUNDING.index_of(caps::CLEAR), None);
        for (i, part) in SocketPart::ALL.into_iter().enumerate() {
            assert_eq!(capture::SOCKET.index_of(socket_part(3, part)), Some(3 * SocketPart::COUNT + i));
        }
    }
}
