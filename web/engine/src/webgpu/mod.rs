//! wgpu on the browser's own WebGPU, for the library's kernels.
//!
//! wgpu has a backend for browsers, which calls them through wasm-bindgen; that takes another target than
//! WASI. So this is a backend of the playground's own: the interfaces of [`wgpu::custom`], each call of
//! which is one of a function that the page gives ([`host`]), an object of the browser's being a number
//! here. The library's recordings, replays and checks are the same as on any other device; only the WGSL
//! is compiled by the browser (Tint, in Chromium) in the place of naga.
//!
//! A browser answers when its event loop turns. Where the library waits ([`wgpu::Device::poll`], an error
//! scope, opening a device) the page's function suspends the engine until the answer is there (JavaScript
//! Promise Integration); so futures here are ready as soon as they are made.
//!
//! What draws is left out: the library has compute kernels only.

mod adapter;
mod buffer;
mod commands;
mod device;
mod host;
mod queue;

use std::future::{Ready, ready};
use std::pin::Pin;

use wgpu::custom::{DispatchAdapter, InstanceInterface};

/// The browser's adapter, for the library.
pub fn begin() {
    retrograd::gpu::Gpu::take_adapters_of(wgpu::Instance::from_custom(Browser));
}

/// A future of wgpu's that is ready.
fn done<T: Send + 'static>(value: T) -> Pin<Box<Ready<T>>> {
    Box::pin(ready(value))
}

/// What only drawing needs is not asked for.
macro_rules! drawing {
    () => {
        unreachable!("the library computes, and draws nothing")
    };
}
use drawing;

#[derive(Debug)]
struct Browser;

impl InstanceInterface for Browser {
    fn new(_: wgpu::InstanceDescriptor) -> Self {
        Browser
    }

    // SAFETY: a method of wgpu's that asks for it; there is nothing to draw on.
    unsafe fn create_surface(
        &self,
        _: wgpu::SurfaceTargetUnsafe,
    ) -> Result<wgpu::custom::DispatchSurface, wgpu::CreateSurfaceError> {
        drawing!()
    }

    fn request_adapter(
        &self,
        _: &wgpu::RequestAdapterOptions<'_, '_>,
    ) -> Pin<Box<dyn wgpu::custom::RequestAdapterFuture>> {
        let found = adapter::Adapter::found().map(DispatchAdapter::custom);
        done(found.ok_or(wgpu::RequestAdapterError::NotFound {
            active_backends: wgpu::Backends::BROWSER_WEBGPU,
            requested_backends: wgpu::Backends::BROWSER_WEBGPU,
            supported_backends: wgpu::Backends::BROWSER_WEBGPU,
            no_fallback_backends: wgpu::Backends::empty(),
            no_adapter_backends: wgpu::Backends::BROWSER_WEBGPU,
            incompatible_surface_backends: wgpu::Backends::empty(),
        }))
    }

    fn poll_all_devices(&self, _: bool) -> bool {
        false
    }

    fn wgsl_language_features(&self) -> wgpu::WgslLanguageFeatures {
        wgpu::WgslLanguageFeatures::empty()
    }

    fn enumerate_adapters(
        &self,
        _: wgpu::Backends,
    ) -> Pin<Box<dyn wgpu::custom::EnumerateAdapterFuture>> {
        let found = adapter::Adapter::found();
        done(Vec::from_iter(found.map(DispatchAdapter::custom)))
    }
}
