//! What Ctrl-C, a request to end (SIGTERM) and the end of a terminal do.
//!
//! While steps are made, the first one lets the running step end and saves; a long step is waited for
//! as long as [`PATIENCE`] says. While nothing would be lost, as data is read, the end of a run drawn and verified, or another command works, it ends the
//! process at once; so does a second one. Files are written whole or not at all, and what was being
//! written is removed.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{log, processes};

static STOP: AtomicBool = AtomicBool::new(false);
static PHASE: AtomicU8 = AtomicU8::new(Phase::Free as u8);
static LAST_WORDS: Mutex<String> = Mutex::new(String::new());

/// What a signal would interrupt.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// What can be done again.
    Free,
    /// Steps, which are worth saving.
    Stepping,
    /// An evaluation or a long step, which a resumed run makes up for; what was done in the second
    /// before it may not be saved.
    Repeatable,
}

/// How long an evaluation or a long step is waited for, to be saved after it.
const PATIENCE: Duration = Duration::from_millis(600);

/// Becomes true at the first signal.
pub fn stop() -> &'static AtomicBool {
    &STOP
}

/// From here on a signal would interrupt this.
pub fn enter(phase: Phase) {
    PHASE.store(phase as u8, Ordering::SeqCst);
}

fn interrupts(phase: Phase) -> bool {
    PHASE.load(Ordering::SeqCst) == phase as u8
}

/// What is said where a signal ends the process at once.
pub fn last_words(text: String) {
    *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner) = text;
}

/// Begins to listen. A limit on the size of files becomes an error of the write that meets it.
pub fn listen() {
    ignore_file_size_signal();
    // The thread that listens would be refused as this one is, when signals are caught already.
    let probe = std::thread::Builder::new().spawn(|| ());
    let listening = probe.map_err(|e| e.to_string()).and_then(|probe| {
        let _ = probe.join();
        ctrlc::set_handler(on_signal).map_err(|e| e.to_string())
    });
    if let Err(error) = listening {
        log::warn(&format!(
            "cannot listen for Ctrl-C: {error}; it ends the command without saving"
        ));
    }
}

fn on_signal() {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let again = STOP.swap(true, Ordering::SeqCst);
    let first = FIRST.get_or_init(Instant::now);
    // A launcher passes a Ctrl-C on, and asks to end besides.
    if again && processes::joined() && first.elapsed() < Duration::from_secs(1) {
        return;
    }
    if interrupts(Phase::Free) || again {
        end();
    }
    log::note("stopping; once more ends at once without saving");
    let start = Instant::now();
    while interrupts(Phase::Repeatable) {
        if start.elapsed() >= PATIENCE {
            end();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends the process, with nothing half written left behind.
fn end() -> ! {
    let _halted = retrograd::command::halt();
    let text = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let text = if text.is_empty() { "stopped" } else { &text };
    // On a line of its own, below the bar.
    let line = if log::draws() { "\n" } else { "" };
    log::error(&format!("{line}{text}"), 130);
    exit_at_once(130)
}

/// Without what is done at an exit: other threads are at work, and drivers of GPUs don't like to be
/// taken down under them.
#[cfg(unix)]
fn exit_at_once(code: i32) -> ! {
    #[allow(unsafe_code, reason = "a function of the C library")]
    unsafe extern "C" {
        fn _exit(code: i32) -> !;
    }
    #[allow(unsafe_code, reason = "a function of the C library")]
    // SAFETY: it takes any number, and nothing comes after it.
    unsafe {
        _exit(code)
    }
}

#[cfg(not(unix))]
fn exit_at_once(code: i32) -> ! {
    std::process::exit(code)
}

#[cfg(unix)]
fn ignore_file_size_signal() {
    const SIGXFSZ: i32 = 25;
    const SIG_IGN: usize = 1;
    #[allow(unsafe_code, reason = "a function of the C library")]
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    #[allow(unsafe_code, reason = "a function of the C library")]
    // SAFETY: to ignore a signal runs no code of ours.
    unsafe {
        signal(SIGXFSZ, SIG_IGN);
    }
}

#[cfg(not(unix))]
fn ignore_file_size_signal() {}
