//! Workers of a page that train together: each has an engine of its own, and what they exchange goes through
//! memory that the page shares among them (`web/src/group.ts`). They are processes to the library, whose shards
//! give the same bits however many there are.

use retrograd::group::Group;
use serde::Deserialize;

#[link(wasm_import_module = "workers")]
unsafe extern "C" {
    /// Sends `sent[r]` bytes to worker r, one worker's behind the other's, and receives `counts[r]` bytes from it in the
    /// same way. Returns when all are here and everything of this worker's is on its way.
    fn all_to_all(send: *const u8, sent: *const u32, received: *mut u8, counts: *const u32);
}

/// The place of this worker among the others.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workers {
    rank: usize,
    size: usize,
}

fn swapped(send: &[u8], sent: &[u32], received: &mut [u8], counts: &[u32]) {
    // SAFETY: both lists have a length for every worker, which the page reads, and the bytes are as many as
    // they say; the page returns when it has written the last.
    unsafe {
        all_to_all(
            send.as_ptr(),
            sent.as_ptr(),
            received.as_mut_ptr(),
            counts.as_ptr(),
        )
    };
}

impl Workers {
    /// The same number for everybody else.
    fn others(self, bytes: usize) -> Vec<u32> {
        let of = |r| if r == self.rank { 0 } else { bytes as u32 };
        (0..self.size).map(of).collect()
    }

    /// Everybody's number at everybody.
    fn numbers(self, own: usize) -> Vec<u32> {
        let one = self.others(4);
        let send = (own as u32).to_le_bytes().repeat(self.size - 1);
        let mut received = vec![0; 4 * (self.size - 1)];
        swapped(&send, &one, &mut received, &one);
        let mut all: Vec<u32> = received
            .chunks_exact(4)
            .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .collect();
        all.insert(self.rank, own as u32);
        all
    }
}

/// Four times every count.
fn bytes_of(counts: &[usize]) -> Vec<u32> {
    counts.iter().map(|&count| 4 * count as u32).collect()
}

impl Group for Workers {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        let mut counts = self.numbers(own.len());
        counts[self.rank] = 0;
        let mut received = vec![0; counts.iter().sum::<u32>() as usize];
        let send = own.repeat(self.size - 1);
        swapped(&send, &self.others(own.len()), &mut received, &counts);
        let mut rest = &received[..];
        let of = |(r, &count): (usize, &u32)| {
            if r == self.rank {
                return own.to_vec();
            }
            let (its, after) = rest.split_at(count as usize);
            rest = after;
            its.to_vec()
        };
        counts.iter().enumerate().map(of).collect()
    }

    fn exchange(&self, send: &[f32], sent: &[usize], received: &mut [f32], counts: &[usize]) {
        let (send, received) = (as_bytes(send), as_bytes_mut(received));
        swapped(send, &bytes_of(sent), received, &bytes_of(counts));
    }

    fn share(&self, all: &mut [f32], counts: &[usize]) {
        let start: usize = counts[..self.rank].iter().sum();
        let end = start + counts[self.rank];
        let send = as_bytes(&all[start..end]).repeat(self.size - 1);
        let mut others = counts.to_vec();
        others[self.rank] = 0;
        // Those before this one, and those behind it.
        let mut received = vec![0.0; others.iter().sum()];
        let sent = self.others(4 * counts[self.rank]);
        swapped(
            &send,
            &sent,
            as_bytes_mut(&mut received),
            &bytes_of(&others),
        );
        let (before, behind) = received.split_at(start);
        all[..start].copy_from_slice(before);
        all[end..end + behind.len()].copy_from_slice(behind);
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) {
        let own = if self.rank == 0 { bytes.len() } else { 0 };
        let length = self.numbers(own)[0];
        let mut nothing = vec![0; self.size];
        if self.rank == 0 {
            let send = bytes.repeat(self.size - 1);
            swapped(&send, &self.others(bytes.len()), &mut [], &nothing);
            return;
        }
        bytes.resize(length as usize, 0);
        let sent = nothing.clone();
        nothing[0] = length;
        swapped(&[], &sent, bytes, &nothing);
    }

    fn barrier(&self) {
        self.numbers(0);
    }

    /// Every worker computes on a core of its own, and is itself what carries the bytes.
    fn overlaps(&self, _: usize) -> bool {
        false
    }
}

fn as_bytes(numbers: &[f32]) -> &[u8] {
    // SAFETY: every number is four bytes, and bytes may be anywhere.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

fn as_bytes_mut(numbers: &mut [f32]) -> &mut [u8] {
    // SAFETY: as above; and any four bytes are a number.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}
