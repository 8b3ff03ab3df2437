//! What the readers and the preparation promise.
