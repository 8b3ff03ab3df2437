//! Meetings: what every process brings, or that one of them failed.
//!
//! A process that fails on its own (a file that only it can't read) must not leave the others waiting.
//! So processes exchange nothing before they have met, and a meeting may be answered with an error:
//! then all of them know, and all end with it.

use super::Group;
use crate::{Error, Result};

/// What a process brings to a meeting.
pub(crate) enum Frame<'a> {
    /// It goes on, with these bytes.
    Fine(&'a [u8]),
    /// It failed.
    Failed(&'a Error),
}

const FINE: u8 = 0;
const FAILED: u8 = 1;

/// That nobody has failed, as all learn; else the error of the lowest rank that has. For what is done
/// before a session, which sees to it itself.
pub fn agree(group: &dyn Group, own: &std::result::Result<(), String>) -> Result<()> {
    let failed;
    let own = match own {
        Ok(()) => Frame::Fine(&[]),
        Err(text) => {
            let (rank, message) = (group.rank(), text.clone());
            failed = Error::Process { rank, message };
            Frame::Failed(&failed)
        }
    };
    meet(group, own).map(|_| ())
}

/// Everybody's bytes, in the order of ranks; the error of the lowest rank that failed.
pub(crate) fn meet(group: &dyn Group, own: Frame<'_>) -> Result<Vec<Vec<u8>>> {
    let mut frame = Vec::new();
    match own {
        Frame::Fine(bytes) => {
            frame.push(FINE);
            frame.extend_from_slice(bytes);
        }
        Frame::Failed(error) => {
            frame.push(FAILED);
            let text = match error {
                Error::Process { message, .. } => message.clone(),
                error => error.to_string(),
            };
            frame.extend_from_slice(text.as_bytes());
        }
    }
    let mut all = group.gather(&frame);
    let failed = |frame: &Vec<u8>| frame.first() == Some(&FAILED);
    if let Some(rank) = all.iter().position(failed) {
        let message = String::from_utf8_lossy(&all[rank][1..]).into_owned();
        return Err(Error::Process { rank, message });
    }
    for frame in &mut all {
        frame.remove(0);
    }
    Ok(all)
}
