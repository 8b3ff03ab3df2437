//! Which two values every gate reads. Drawn once, before training, and then fixed.

use serde::{Deserialize, Serialize};

use crate::rng::Stream;
use crate::rng::jax::JaxKey;
use crate::{Error, Result};

/// How the gates of a layer are wired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WiringKind {
    /// Neighbouring inputs are paired so that every input is read and no pair occurs twice, then
    /// the gates are shuffled. The first perception layer, where it is 8 wide, compares each of
    /// the eight neighbours with the centre.
    #[default]
    Unique,
    /// The same, drawn as the paper's notebook draws it, with JAX's random numbers: seed 23 gives
    /// the wires of the published runs. The kernels share their wires.
    Jax,
    /// Two different inputs at random for every gate.
    Random,
}

/// The wires of one layer: gate j reads inputs a\[j\] and b\[j\].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wires {
    /// First inputs.
    pub a: Vec<u32>,
    /// Second inputs.
    pub b: Vec<u32>,
}

impl Wires {
    /// The eight neighbours, shuffled, each against the centre (4).
    pub fn first_kernel(stream: &mut Stream) -> Self {
        let mut wires = Self::neighbours();
        stream.shuffle(&mut wires.a);
        wires
    }

    /// The eight neighbours in order, each against the centre.
    fn neighbours() -> Self {
        Wires {
            a: vec![0, 1, 2, 3, 5, 6, 7, 8],
            b: vec![4; 8],
        }
    }

    /// The pairs (0,1), (2,3) …; if too few, (1,2), (3,4) …; then (i, i+d) for d = 2, 3, …; cut to
    /// the number of gates and shuffled. Without the shuffle, neighbouring gates stay neighbours
    /// through all layers and information can't spread.
    pub fn unique(what: &str, inputs: usize, gates: usize, stream: &mut Stream) -> Result<Self> {
        let wires = Self::pairs(what, inputs, gates)?;
        let mut order: Vec<usize> = (0..gates).collect();
        stream.shuffle(&mut order);
        Ok(wires.ordered(&order))
    }

    /// The layers of a circuit of those widths, as the notebook draws them: a key for every layer.
    pub fn jax(what: &str, widths: &[usize], first: bool, mut key: JaxKey) -> Result<Vec<Self>> {
        let layer = |l: usize| {
            let wires = if first && l == 1 && widths[l] == 8 {
                Self::neighbours()
            } else {
                Self::pairs(&format!("{what}[{l}]"), widths[l - 1], widths[l])?
            };
            Ok(wires.ordered(&key.branch().permutation(widths[l])))
        };
        (1..widths.len()).map(layer).collect()
    }

    fn ordered(&self, order: &[usize]) -> Self {
        let along = |wires: &[u32]| order.iter().map(|&j| wires[j]).collect();
        Wires {
            a: along(&self.a),
            b: along(&self.b),
        }
    }

    /// [`Wires::unique`] before the shuffle.
    fn pairs(what: &str, inputs: usize, gates: usize) -> Result<Self> {
        check_widths(what, inputs, gates)?;
        let most = inputs * (inputs - 1) / 2;
        if gates > most {
            return Err(Error::invalid(
                what,
                format!("{gates} gates on {inputs} inputs"),
                format!("at most {most} gates, one for every pair of inputs"),
            ));
        }
        let first = (0..inputs - 1).step_by(2).map(|i| (i, i + 1));
        let second = (1..inputs - 1).step_by(2).map(|i| (i, i + 1));
        let further = (2..inputs).flat_map(|d| (0..inputs - d).map(move |i| (i, i + d)));
        let pairs = first.chain(second).chain(further).take(gates);
        let (a, b) = pairs.map(|(a, b)| (a as u32, b as u32)).unzip();
        Ok(Wires { a, b })
    }

    /// Two different inputs for every gate, at random.
    pub fn random(what: &str, inputs: usize, gates: usize, stream: &mut Stream) -> Result<Self> {
        check_widths(what, inputs, gates)?;
        let mut wires = Wires {
            a: Vec::with_capacity(gates),
            b: Vec::with_capacity(gates),
        };
        for _ in 0..gates {
            let a = stream.below(inputs);
            let b = (a + 1 + stream.below(inputs - 1)) % inputs;
            wires.a.push(a as u32);
            wires.b.push(b as u32);
        }
        Ok(wires)
    }

    /// The number of gates.
    pub fn gates(&self) -> usize {
        self.a.len()
    }

    /// Every wire leads to one of the inputs, and there are as many as gates.
    pub fn check(&self, what: &str, inputs: usize, gates: usize) -> Result<()> {
        if self.a.len() != gates || self.b.len() != gates {
            return Err(Error::invalid(
                what,
                format!("{} and {} wires", self.a.len(), self.b.len()),
                format!("{gates} of each"),
            ));
        }
        match self
            .a
            .iter()
            .chain(&self.b)
            .find(|&&w| w as usize >= inputs)
        {
            Some(wire) => Err(Error::invalid(
                what,
                format!("wire {wire}"),
                format!("wires below {inputs}, the number of inputs"),
            )),
            None => Ok(()),
        }
    }
}

fn check_widths(what: &str, inputs: usize, gates: usize) -> Result<()> {
    if inputs < 2 || gates == 0 || 2 * gates < inputs {
        return Err(Error::invalid(
            what,
            format!("{gates} gates on {inputs} inputs"),
            "2 inputs or more, and gates enough to read them all: 2·gates ≥ inputs",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    #[test]
    fn unique_reads_every_input_and_repeats_no_pair() {
        for (inputs, gates) in [
            (264, 256),
            (256, 256),
            (17, 128),
            (9, 5),
            (8, 8),
            (2, 1),
            (8, 4),
        ] {
            let mut stream = Key::new(5).stream();
            let wires = Wires::unique("layer", inputs, gates, &mut stream).unwrap();
            wires.check("layer", inputs, gates).unwrap();
            let mut pairs: Vec<_> = wires.a.iter().zip(&wires.b).collect();
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!(pairs.len(), gates);
            let mut read = vec![false; inputs];
            for w in wires.a.iter().chain(&wires.b) {
                read[*w as usize] = true;
            }
            let unread = read.iter().filter(|&&r| !r).count();
            // An odd input is left over where there is just half a gate per input.
            assert!(unread <= inputs % 2, "{inputs} → {gates}: {unread}");
        }
    }

    #[test]
    fn the_shuffle_moves_gates() {
        let wires = Wires::unique("layer", 64, 64, &mut Key::new(1).stream()).unwrap();
        assert!(wires.a.windows(2).any(|w| w[1] != w[0] + 2));
    }

    #[test]
    fn widths_that_leave_inputs_unread_are_refused() {
        let stream = &mut Key::new(0).stream();
        for (inputs, gates) in [(9, 4), (1, 1), (4, 0), (2, 2)] {
            let error = Wires::unique("update[1]", inputs, gates, stream).unwrap_err();
            assert!(error.to_string().contains("update[1]"), "{error}");
        }
        let wires = Wires {
            a: vec![0, 7],
            b: vec![1, 2],
        };
        let error = wires.check("wires.update.0", 7, 2).unwrap_err().to_string();
        assert!(
            error.contains("wire 7") && error.contains("below 7"),
            "{error}"
        );
    }
}
