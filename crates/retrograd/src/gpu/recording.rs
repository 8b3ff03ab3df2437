//! A recording: dispatches with their buffers, built once per shape and replayed.

use super::counters::count;
use super::device::Gpu;
use super::guard;
use super::kernels::Kernel;
use super::traffic::Tally;
use crate::{Error, Result};

/// A part of a buffer that a kernel sees.
#[derive(Clone)]
pub(crate) struct Part {
    pub buffer: wgpu::Buffer,
    /// In bytes.
    pub offset: u64,
    pub bytes: u64,
}

impl Part {
    /// All of it.
    pub fn whole(buffer: &wgpu::Buffer) -> Self {
        Part {
            buffer: buffer.clone(),
            offset: 0,
            bytes: buffer.size() - guard::bytes(buffer.usage()),
        }
    }

    /// The bytes that a kernel sees: to the end of the buffer where the part reaches it, with what is
    /// there to show a kernel that goes beyond.
    pub fn bound(&self) -> u64 {
        let guard = guard::bytes(self.buffer.usage());
        match self.offset + self.bytes + guard == self.buffer.size() {
            true => self.bytes + guard,
            false => self.bytes,
        }
    }
}

struct Dispatch {
    label: String,
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    groups: [u32; 2],
    /// Counts what it reads and writes, where that was asked for.
    tally: Option<Tally>,
}

/// Dispatches, in order.
#[derive(Default)]
pub(crate) struct Recording {
    dispatches: Vec<Dispatch>,
    /// Activations have 16 bits.
    half: bool,
}

impl Recording {
    /// An empty one, of kernels with 16-bit activations or without.
    pub fn new(half: bool) -> Self {
        let dispatches = Vec::new();
        Recording { dispatches, half }
    }

    /// Adds a kernel. `sizes` are fields of its file's `struct Sizes`, `buffers` its bindings from 1
    /// on (0 holds the sizes), `groups` the number of workgroups, folded into a second dimension
    /// where one is not enough.
    pub fn dispatch(
        &mut self,
        gpu: &Gpu,
        label: &str,
        (kernel, entry): (&Kernel, &'static str),
        constants: &[(&'static str, f64)],
        sizes: &[(&'static str, usize)],
        buffers: &[&Part],
        groups: usize,
    ) -> Result<()> {
        let groups = fold(groups, gpu.max_groups())?;
        let tally = match gpu.tallies() {
            true => Some(Tally::new(
                gpu, kernel, self.half, entry, constants, buffers,
            )?),
            false => None,
        };
        let pipeline = match &tally {
            Some(tally) => tally.pipeline.clone(),
            None => gpu.pipeline(kernel, self.half, entry, constants),
        };
        let sizes = gpu.constant(
            "sizes",
            bytemuck::cast_slice(&kernel.sizes(sizes)?),
            wgpu::BufferUsages::UNIFORM,
        )?;
        let mut entries = vec![wgpu::BindGroupEntry {
            binding: 0,
            resource: sizes.as_entire_binding(),
        }];
        for (i, part) in buffers.iter().enumerate() {
            entries.push(wgpu::BindGroupEntry {
                binding: i as u32 + 1,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &part.buffer,
                    offset: part.offset,
                    size: std::num::NonZeroU64::new(part.bound()),
                }),
            });
        }
        let bind_group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(label),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        gpu.check()?;
        self.dispatches.push(Dispatch {
            label: label.into(),
            pipeline,
            bind_group,
            groups,
            tally,
        });
        Ok(())
    }

    /// Whether activations have 16 bits.
    pub fn is_half(&self) -> bool {
        self.half
    }

    /// The kernels' labels, in order.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.dispatches.iter().map(|dispatch| &dispatch.label[..])
    }

    /// The kernels' labels and counts, where they were asked for.
    pub fn tallies(&self) -> impl Iterator<Item = (&str, &Tally)> {
        (self.dispatches.iter()).filter_map(|d| Some((&d.label[..], d.tally.as_ref()?)))
    }

    /// Replays it into an encoder, in one pass. With a query set every kernel gets a pass of its
    /// own, whose begin and end are the queries 2i and 2i+1.
    pub fn replay(
        &self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        times: Option<&wgpu::QuerySet>,
    ) {
        count(&gpu.counting.dispatches, self.dispatches.len() as u64);
        let run = |pass: &mut wgpu::ComputePass<'_>, dispatch: &Dispatch| {
            pass.set_pipeline(&dispatch.pipeline);
            pass.set_bind_group(0, &dispatch.bind_group, &[]);
            if let Some(tally) = &dispatch.tally {
                pass.set_bind_group(1, &tally.bind_group, &[]);
            }
            pass.dispatch_workgroups(dispatch.groups[0], dispatch.groups[1], 1);
        };
        let Some(query_set) = times else {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            for dispatch in &self.dispatches {
                run(&mut pass, dispatch);
            }
            return;
        };
        for (i, dispatch) in (0..).zip(&self.dispatches) {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                    query_set,
                    beginning_of_pass_write_index: Some(2 * i),
                    end_of_pass_write_index: Some(2 * i + 1),
                }),
            });
            run(&mut pass, dispatch);
        }
    }
}

/// Workgroups in two dimensions, each within the limit; there may be more than were asked for.
pub(crate) fn fold(groups: usize, limit: u32) -> Result<[u32; 2]> {
    let limit = limit as usize;
    let rows = groups.div_ceil(limit).max(1);
    if rows > limit {
        return Err(Error::Gpu {
            what: format!("{groups} workgroups, the adapter allows {limit} × {limit}"),
            advice: "a smaller batch".into(),
        });
    }
    let columns = groups.div_ceil(rows).max(1);
    Ok([columns as u32, rows as u32])
}

/// Reads a part of a buffer back: one submit, one wait.
pub(crate) fn download(gpu: &Gpu, part: &Part) -> Result<Vec<f32>> {
    gpu.check()?;
    let bytes = part.bytes;
    // Mappings begin at multiples of 8 bytes.
    let aligned = part.offset.is_multiple_of(wgpu::MAP_ALIGNMENT);
    if aligned && part.buffer.usage().contains(wgpu::BufferUsages::MAP_READ) {
        // Read where it is; an empty submit brings what was written and not yet sent.
        count(&gpu.counting.submits, 1);
        gpu.queue.submit([]);
        let slice = part.buffer.slice(part.offset..part.offset + bytes);
        slice.map_async(wgpu::MapMode::Read, |_| {});
        gpu.wait(None)?;
        return read_mapped_at(gpu, &part.buffer, part.offset, bytes);
    }
    let encoder = gpu.device.create_command_encoder(&Default::default());
    finish_with_download(gpu, encoder, part, (bytes / 4) as usize)
}

/// Submits with a copy of the first `len` floats of a part, and waits for them.
pub(crate) fn finish_with_download(
    gpu: &Gpu,
    mut encoder: wgpu::CommandEncoder,
    part: &Part,
    len: usize,
) -> Result<Vec<f32>> {
    let bytes = 4 * len as u64;
    let staging = gpu.buffer(
        "staging",
        bytes,
        wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
    )?;
    encoder.copy_buffer_to_buffer(&part.buffer, part.offset, &staging, 0, bytes);
    let submission = gpu.submit(encoder);
    staging
        .slice(..bytes)
        .map_async(wgpu::MapMode::Read, |_| {});
    gpu.wait(Some(submission))?;
    read_mapped(gpu, &staging, bytes)
}

/// The content of a buffer that is mapped, which is unmapped.
pub(crate) fn read_mapped(gpu: &Gpu, staging: &wgpu::Buffer, bytes: u64) -> Result<Vec<f32>> {
    read_mapped_at(gpu, staging, 0, bytes)
}

fn read_mapped_at(gpu: &Gpu, staging: &wgpu::Buffer, at: u64, bytes: u64) -> Result<Vec<f32>> {
    let view = staging
        .get_mapped_range(at..at + bytes)
        .map_err(|e| Error::Gpu {
            what: format!("a buffer could not be read back: {e}"),
            advice: "the device may have been lost; resume from the last checkpoint".into(),
        })?;
    let values = bytemuck::pod_collect_to_vec(&view);
    drop(view);
    staging.unmap();
    count(&gpu.counting.bytes_down, bytes);
    count(&gpu.counting.bytes_copied, bytes);
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workgroups_beyond_the_limit_are_folded_and_cover_what_was_asked() {
        for groups in [1, 65_535, 65_536, 86_400, 65_535 * 65_535] {
            let [x, y] = fold(groups, 65_535).unwrap();
            assert!(x <= 65_535 && y <= 65_535 && x as usize * y as usize >= groups);
        }
        assert!(fold(65_535 * 65_535 + 1, 65_535).is_err());
    }
}
