//! Memory that a thread keeps to work in.

use std::cell::RefCell;

/// Workspace to work in that a thread keeps.
#[derive(Default)]
pub(crate) struct Workspace {
    /// Numbers; their content is unspecified.
    pub floats: Vec<f32>,
    /// Positions; their content is unspecified.
    pub indices: Vec<u32>,
}

thread_local! {
    static WORKSPACES: RefCell<Vec<Workspace>> = const { RefCell::new(Vec::new()) };
}

/// Workspace of this thread for the duration of the call. It is kept and grows on a thread's first
/// calls only; a call within the call gets the next one.
pub(crate) fn with_workspace<R>(work: impl FnOnce(&mut Workspace) -> R) -> R {
    let mut scratch = WORKSPACES.with_borrow_mut(Vec::pop).unwrap_or_default();
    let result = work(&mut scratch);
    WORKSPACES.with_borrow_mut(|free| free.push(scratch));
    result
}

/// That many numbers of this thread's scratch, their content unspecified.
pub(crate) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    with_workspace(|scratch| {
        if scratch.floats.len() < len {
            scratch.floats.resize(len, 0.0);
        }
        work(&mut scratch.floats[..len])
    })
}
