//! The rows of the table, one file for each class.

mod arguments;
mod bombs;
mod copy_on_write;
mod cores;
mod denied;
mod descriptors;
mod devices;
mod execution;
mod files;
mod ipc;
mod kernel;
mod keyrings;
mod leaks;
mod metadata;
mod mounts;
mod namespaces;
mod network;
mod outliving;
mod privileges;
mod proc;
mod protected;
mod signals;
mod sockets;
mod terminal;
mod tracing;

use crate::attack::Attack;

/// Every attack, in the order of the table.
pub fn all() -> Vec<Attack> {
    [
        files::ROWS,
        denied::ROWS,
        protected::ROWS,
        copy_on_write::ROWS,
        mounts::ROWS,
        proc::ROWS,
        namespaces::ROWS,
        devices::ROWS,
        metadata::ROWS,
        tracing::ROWS,
        signals::ROWS,
        outliving::ROWS,
        execution::ROWS,
        sockets::ROWS,
        network::ROWS,
        descriptors::ROWS,
        terminal::ROWS,
        privileges::ROWS,
        keyrings::ROWS,
        cores::ROWS,
        ipc::ROWS,
        leaks::ROWS,
        bombs::ROWS,
        arguments::ROWS,
        kernel::ROWS,
    ]
    .concat()
}
