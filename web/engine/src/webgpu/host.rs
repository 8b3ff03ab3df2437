//! What the page's side does (`web/src/webgpu.ts`): every object of the browser's is a number here, and a
//! place in a table there. Sizes and offsets are f64, which a page has as plain numbers.

#[link(wasm_import_module = "webgpu")]
unsafe extern "C" {
    /// The bytes of a text that says what the adapter is, JSON; 0 where there is none.
    pub safe fn describe() -> usize;
    /// Copies the text that a function has just told the length of.
    fn take(to: *mut u8);
    /// Forgets an object.
    pub safe fn release(object: u32);

    /// A device of the adapter, with all that it has; 0, and a text, where it gives none. Suspends.
    pub safe fn open() -> u32;
    /// Waits for all that was submitted, and for what was to be mapped. Suspends.
    pub safe fn wait(device: u32);
    /// The bytes of a text of what the device said since: a letter (l for lost, o, v or i for an error of
    /// memory, validation or its own) and words.
    pub safe fn trouble(device: u32) -> usize;
    pub safe fn destroy_device(device: u32);
    pub safe fn push_scope(device: u32, memory: u32);
    /// The bytes of the error, as [`trouble`]; 0 where there was none. Suspends.
    pub safe fn pop_scope(device: u32) -> usize;

    fn shader(device: u32, text: *const u8, bytes: usize) -> u32;
    /// A compute pipeline, a layout of it or of bindings, or a group of them, said in JSON.
    fn make(device: u32, text: *const u8, bytes: usize) -> u32;
    pub safe fn bindings_of(pipeline: u32, index: u32) -> u32;

    pub safe fn buffer(device: u32, bytes: f64, usage: u32, mapped: u32) -> u32;
    pub safe fn destroy_buffer(buffer: u32);
    fn write(device: u32, buffer: u32, offset: f64, from: *const u8, bytes: usize);
    /// Asks for a part to be mapped.
    pub safe fn map(device: u32, buffer: u32, mode: u32, offset: f64, bytes: f64);
    /// 0 while it is not known, 1 where it is mapped, 2 where it could not be.
    pub safe fn mapped(buffer: u32) -> u32;
    fn read(buffer: u32, offset: f64, to: *mut u8, bytes: usize) -> u32;
    fn fill(buffer: u32, offset: f64, from: *const u8, bytes: usize);
    pub safe fn unmap(buffer: u32);

    pub safe fn encoder(device: u32) -> u32;
    pub safe fn copy(
        encoder: u32,
        from: u32,
        from_offset: f64,
        to: u32,
        to_offset: f64,
        bytes: f64,
    );
    pub safe fn clear(encoder: u32, buffer: u32, offset: f64, bytes: f64);
    pub safe fn pass(encoder: u32) -> u32;
    pub safe fn set_pipeline(pass: u32, pipeline: u32);
    pub safe fn set_group(pass: u32, index: u32, group: u32);
    pub safe fn dispatch(pass: u32, x: u32, y: u32, z: u32);
    pub safe fn end(pass: u32);
    pub safe fn finish(encoder: u32) -> u32;
    pub safe fn submit(device: u32, commands: u32);
}

/// An object of the browser's, which is forgotten there with it.
#[derive(Debug, PartialEq, Eq)]
pub struct Object(pub u32);

impl Drop for Object {
    fn drop(&mut self) {
        release(self.0);
    }
}

/// The text whose length was just told.
pub fn text(bytes: usize) -> String {
    let mut text = vec![0; bytes];
    // SAFETY: the page writes as many bytes as it said.
    unsafe { take(text.as_mut_ptr()) };
    String::from_utf8_lossy(&text).into_owned()
}

pub fn shader_of(device: u32, wgsl: &str) -> Object {
    // SAFETY: the page reads the text before it returns.
    Object(unsafe { shader(device, wgsl.as_ptr(), wgsl.len()) })
}

pub fn made(device: u32, said: &serde_json::Value) -> Object {
    let text = said.to_string();
    // SAFETY: the page reads the text before it returns.
    Object(unsafe { make(device, text.as_ptr(), text.len()) })
}

pub fn written(device: u32, to: u32, offset: u64, bytes: &[u8]) {
    // SAFETY: the page reads the bytes before it returns.
    unsafe { write(device, to, offset as f64, bytes.as_ptr(), bytes.len()) };
}

/// Bytes of a part that is mapped; none where it isn't.
pub fn mapped_bytes(buffer: u32, offset: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut found = vec![0; bytes];
    // SAFETY: the page writes that many bytes, or none and says so.
    let is_there = unsafe { read(buffer, offset as f64, found.as_mut_ptr(), bytes) } == 1;
    is_there.then_some(found)
}

pub fn filled(buffer: u32, offset: u64, bytes: &[u8]) {
    // SAFETY: the page reads the bytes before it returns.
    unsafe { fill(buffer, offset as f64, bytes.as_ptr(), bytes.len()) };
}
