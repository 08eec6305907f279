//! The two ends of a session: the channel with who wrote what, and the pipes that output comes through.
//!
//! ```text
//!  owner                                    agent (and no other process)
//!  socket, SO_PASSCRED ◀──────────────────▶ descriptor 3
//!  pipe: a read end of its own ◀── inode ──▶ descriptor n, a read end: opened for writing by /proc/self/fd/n per call
//! ```
//!
//! A pipe is used again once no process has it open for writing. What an earlier call left behind keeps its own pipe, which is
//! out of use until then; so nothing that it prints comes into a later answer.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cofferdam_confine::init_plan;
use cofferdam_confine::wire::fd::FIRST_EXTRA;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, SocketType, recvmsg,
    send, socketpair,
};

use super::session_refusals::Tap;
use crate::outcome::FileChange;
use crate::plan::Layer;
use crate::run::overlay;

/// Pairs of pipes of one session: as many calls can have left something running that still holds their output.
pub(crate) const PAIRS: usize = 8;

/// The agent's ends, on their way into the sandbox.
#[derive(Debug)]
pub(crate) struct AgentChannel {
    /// The channel, then the pipes.
    theirs: Vec<OwnedFd>,
    stdio: bool,
    /// Where the tmpfs goes that is handed over while the session lives.
    workspace: Arc<OnceLock<Arc<OwnedFd>>>,
    /// Copy-on-write layers, as they come from init.
    layers: Arc<Mutex<Vec<(Layer, OwnedFd)>>>,
    tap: Arc<Tap>,
}

impl AgentChannel {
    /// A copy-on-write layer: each answer says what it changes. Without the descriptor, only the end does.
    pub(crate) fn take_layer(&self, layer: &Layer, root: &OwnedFd) {
        if let Ok(copy) = root.try_clone() {
            self.layers.lock().unwrap_or_else(PoisonError::into_inner).push((layer.clone(), copy));
        }
    }

    /// The tmpfs that the session works in: its descriptor as it comes from init. Whoever wants it can do without it.
    pub(crate) fn take_workspace(&self, root: &OwnedFd) {
        if let Ok(copy) = root.try_clone() {
            self.workspace.get_or_init(|| Arc::new(copy));
        }
    }

    /// Where the supervisor puts what is refused.
    pub(crate) fn tap(&self) -> &Tap {
        &self.tap
    }

    /// Puts the ends among the descriptors that go with the plan. A second time there is nothing left to put.
    pub(crate) fn join(&mut self, init_plan: &mut init_plan::InitPlan, extra: &mut Vec<OwnedFd>) {
        let Some(more) = self.theirs.len().checked_sub(1) else { return };
        let channel = init_plan::SessionChannel { first: extra.len() as u16, more: more as u16, stdio: self.stdio };
        for pipe in &self.theirs[1..] {
            crate::run::streams::give_away(pipe, init_plan.ids_out);
        }
        init_plan.channel = Some(channel);
        extra.append(&mut self.theirs);
    }
}

/// A pipe that output comes through.
#[derive(Debug)]
struct Pipe {
    /// Our read end, an opening of its own: what the agent does to its own does nothing to ours.
    ours: OwnedFd,
    /// The agent's descriptor.
    number: i32,
}

/// A pipe in use.
#[derive(Debug)]
pub(crate) struct Use {
    /// Our read ends.
    pub ours: [OwnedFd; 2],
    /// The agent's numbers.
    pub numbers: [i32; 2],
    /// Writers of ours: while they are open, an empty pipe is one to wait for, not the end.
    writers: [OwnedFd; 2],
}

impl Use {
    /// How many bytes are in each pipe.
    pub(crate) fn left(&self) -> [u64; 2] {
        [0, 1].map(|i| rustix::io::ioctl_fionread(&self.ours[i]).unwrap_or(0))
    }

    /// From here on the ends of the pipes are to be seen.
    pub(crate) fn over(self) {
        drop(self.writers);
    }
}

/// The owner's ends.
#[derive(Debug)]
pub(crate) struct Ends {
    socket: OwnedFd,
    pairs: Vec<[Pipe; 2]>,
    workspace: Arc<OnceLock<Arc<OwnedFd>>>,
    layers: Arc<Mutex<Vec<(Layer, OwnedFd)>>>,
    tap: Arc<Tap>,
}

/// What came over the channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChannelRead {
    /// So many bytes, from this process.
    Bytes(usize, i32),
    /// Nothing is there now.
    Nothing,
    /// The other end is closed.
    End,
}

/// Makes both ends. Other people's agents get the channel alone, as their standard streams.
///
/// # Errors
/// socketpair(2), pipe(2), and opening a pipe by its name in /proc.
pub(crate) fn ends(own: bool) -> io::Result<(Ends, AgentChannel)> {
    let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_passcred(&socket, true)?;
    let mut theirs = vec![theirs];
    let mut pairs = Vec::new();
    for pair in 0..if own { PAIRS } else { 0 } {
        let mut pipe = |nth: usize| -> io::Result<Pipe> {
            let (read, _) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            let ours = reopen(read.as_fd(), OFlags::RDONLY | OFlags::NONBLOCK)?;
            theirs.push(read);
            Ok(Pipe { ours, number: FIRST_EXTRA + (pair * 2 + nth) as i32 })
        };
        pairs.push([pipe(0)?, pipe(1)?]);
    }
    let workspace = Arc::<OnceLock<Arc<OwnedFd>>>::default();
    let tap = Arc::<Tap>::default();
    let layers = Arc::<Mutex<Vec<(Layer, OwnedFd)>>>::default();
    let ours = Ends { socket, pairs, workspace: workspace.clone(), layers: layers.clone(), tap: tap.clone() };
    Ok((ours, AgentChannel { theirs, stdio: !own, workspace, layers, tap }))
}

fn reopen(pipe: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?)
}

impl Ends {
    /// The tmpfs that the session works in.
    pub(crate) fn workspace(&self) -> Option<Arc<OwnedFd>> {
        self.workspace.get().cloned()
    }

    /// What its copy-on-write mounts changed so far, and how many changes are not listed.
    pub(crate) fn changes(&self) -> (Vec<FileChange>, u64) {
        let (mut list, mut omitted) = (Vec::new(), 0);
        for (layer, root) in self.layers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            match overlay::changes_so_far(root.as_fd(), &layer.source, &layer.target) {
                Ok(changes) => {
                    list.extend(changes.list);
                    omitted += changes.omitted;
                }
                Err(e) => {
                    tracing::warn!("cannot read what changed in {}: {e}", layer.target);
                    omitted += 1;
                }
            }
        }
        (list, omitted)
    }

    /// What is refused.
    pub(crate) fn tap(&self) -> &Tap {
        &self.tap
    }

    /// The channel, to poll.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// A pair of pipes that nobody writes to any more. `None` when every pair is held by what earlier calls left behind.
    ///
    /// # Errors
    /// A pipe cannot be opened or looked at.
    pub(crate) fn pair(&self, buffer: &mut [u8]) -> io::Result<Option<Use>> {
        for pair in &self.pairs {
            if !(unused(&pair[0], buffer)? && unused(&pair[1], buffer)?) {
                continue;
            }
            let writer = |pipe: &Pipe| reopen(pipe.ours.as_fd(), OFlags::WRONLY | OFlags::NONBLOCK);
            return Ok(Some(Use {
                ours: [pair[0].ours.try_clone()?, pair[1].ours.try_clone()?],
                numbers: [pair[0].number, pair[1].number],
                writers: [writer(&pair[0])?, writer(&pair[1])?],
            }));
        }
        Ok(None)
    }

    /// Reads what one process wrote: the kernel does not put bytes of two into one reading.
    ///
    /// # Errors
    /// recvmsg(2).
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<ChannelRead> {
        // Room for who wrote it, and none for descriptors: what is sent along is closed by the kernel.
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(&self.socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(m) if m.bytes == 0 => Ok(ChannelRead::End),
            Ok(m) => {
                let pid = control.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmCredentials(who) => Some(who.pid.as_raw_nonzero().get()),
                    _ => None,
                });
                Ok(ChannelRead::Bytes(m.bytes, pid.unwrap_or(-1)))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(ChannelRead::Nothing),
            Err(Errno::CONNRESET) => Ok(ChannelRead::End),
            Err(e) => Err(e.into()),
        }
    }

    /// Writes what goes in now. `None` when the other end is closed.
    ///
    /// # Errors
    /// send(2).
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(n) => Ok(Some(n)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Some(0)),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

/// Whether nobody has the pipe open for writing; what is still in it is an earlier call's, and goes.
fn unused(pipe: &Pipe, buffer: &mut [u8]) -> io::Result<bool> {
    for _ in 0..1024 {
        match rustix::io::read(&pipe.ours, &mut *buffer) {
            Ok(0) => return Ok(true),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(false) // written to as fast as it is read
}

/// A pidfd of a process that is known to be there.
///
/// # Errors
/// pidfd_open(2).
pub(crate) fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    /// As the agent opens it.
    fn agents(theirs: &AgentChannel, nth: usize) -> File {
        File::from(reopen(theirs.theirs[1 + nth].as_fd(), OFlags::WRONLY).unwrap())
    }

    #[test]
    fn a_pipe_with_a_writer_left_is_not_used_again() {
        let (ours, theirs) = ends(true).unwrap();
        let mut buffer = [0u8; 4096];
        let first = ours.pair(&mut buffer).unwrap().unwrap();
        let nth = |u: &Use| (u.numbers[0] - FIRST_EXTRA) / 2;
        assert_eq!(nth(&first), 0);
        let mut left_behind = agents(&theirs, 0);
        first.over();
        let second = ours.pair(&mut buffer).unwrap().unwrap();
        assert_eq!(nth(&second), 1);
        left_behind.write_all(b"late").unwrap();
        assert_eq!(second.left(), [0, 0]);
        second.over();
        drop(left_behind);
        let third = ours.pair(&mut buffer).unwrap().unwrap();
        assert_eq!((nth(&third), third.left()), (0, [0, 0]), "and what it wrote is gone");
    }

    #[test]
    fn when_every_pipe_is_held_there_is_none() {
        let (ours, theirs) = ends(true).unwrap();
        let mut buffer = [0u8; 4096];
        let mut held: Vec<File> = (0..PAIRS).map(|i| agents(&theirs, 2 * i + 1)).collect();
        assert!(ours.pair(&mut buffer).unwrap().is_none());
        held.pop();
        let free = ours.pair(&mut buffer).unwrap().unwrap();
        assert_eq!(free.numbers, [2, 1].map(|n| FIRST_EXTRA + 2 * PAIRS as i32 - n));
    }

    #[test]
    fn the_writer_is_reported_and_no_descriptor_comes_along() {
        let (ours, theirs) = ends(false).unwrap();
        let me = std::process::id() as i32;
        let mut buffer = [0u8; 64];
        assert_eq!(ours.receive(&mut buffer).unwrap(), ChannelRead::Nothing);
        let fds = [ours.socket()];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut room);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [io::IoSlice::new(b"abc")];
        rustix::net::sendmsg(&theirs.theirs[0], &bytes, &mut control, SendFlags::empty()).unwrap();
        let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert_eq!(ours.receive(&mut buffer).unwrap(), ChannelRead::Bytes(3, me));
        assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), before);
        drop(theirs);
        assert_eq!(ours.receive(&mut buffer).unwrap(), ChannelRead::End);
        assert_eq!(ours.send(b"x").unwrap(), None);
    }
}
