//! What Rust's standard library asks of the C library and Debian's wasi-libc doesn't have: threads, of which
//! WASI has none, and two short functions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

const EAGAIN: c_int = 6;
const EINVAL: c_int = 28;

unsafe extern "C" {
    fn access(path: *const c_char, mode: c_int) -> c_int;
    fn malloc(bytes: usize) -> *mut c_void;
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_init(_attributes: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_setstacksize(_attributes: *mut c_void, _bytes: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_destroy(_attributes: *mut c_void) -> c_int {
    0
}

/// Refused, as a system without room for threads does: the library computes on one.
#[unsafe(no_mangle)]
extern "C" fn pthread_create(
    _thread: *mut c_void,
    _attributes: *const c_void,
    _start: *const c_void,
    _argument: *mut c_void,
) -> c_int {
    EAGAIN
}

#[unsafe(no_mangle)]
extern "C" fn pthread_join(_thread: usize, _result: *mut *mut c_void) -> c_int {
    EINVAL
}

#[unsafe(no_mangle)]
extern "C" fn pthread_detach(_thread: usize) -> c_int {
    EINVAL
}

/// The name of the error of crates that ask for it here; the standard library has its own way.
#[unsafe(no_mangle)]
extern "C" fn __errno_location() -> *mut c_int {
    static mut ERROR: c_int = 0;
    &raw mut ERROR
}

/// A path without `.` and `..`, in memory of the C library's; the files of a page have no links. Null, with
/// the error that `access` sets, where there is no such file.
#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's path ends with a zero, and where it gives room that is PATH_MAX long.
    unsafe {
        if access(path, 0) != 0 {
            return ptr::null_mut();
        }
        let mut whole: Vec<&[u8]> = Vec::new();
        for part in CStr::from_ptr(path).to_bytes().split(|&b| b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => drop(whole.pop()),
                part => whole.push(part),
            }
        }
        let mut text = vec![b'/'];
        text.extend(whole.join(&b'/'));
        let to = match resolved.is_null() {
            true => malloc(text.len() + 1).cast::<c_char>(),
            false => resolved,
        };
        if !to.is_null() {
            ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
            *to.add(text.len()) = 0;
        }
        to
    }
}
