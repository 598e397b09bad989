//! A disk that fails, fills up and loses power, under the real SQLite backend.
//!
//! A [`Disk`] is a directory whose SQLite files go through a VFS of ours, which is the process's default one from the
//! first [`Disk::attach`] on. It can let calls [fail](Disk::inject), [run out of space](Disk::limit) or
//! [lie](Disk::lie) about syncs, and it keeps a [`Log`] of what happened. From a log comes an [`Image`]: the files
//! as they may be after the power went off at any point. Files in other directories are the system's own.

#![cfg(unix)]

mod chance;
mod disk;
mod fault;
mod image;
mod log;
mod vfs;

pub use chance::Chance;
pub use disk::Disk;
pub use fault::{Call, Extent, Fault, Lasting};
pub use image::{Image, Weather};
pub use log::{Entry, Inode, Log};
