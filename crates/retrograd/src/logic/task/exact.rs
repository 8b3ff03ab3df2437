//! The search for exact circuits near what was trained, and what they are held to.

use super::super::evaluate::Grown;
use super::super::gates::{GATES, hardest};
use super::super::hard::Program;
use super::super::patterns::Goal;
use super::super::rounding;
use super::super::trial::{Grids, Stripped, Trial};
use super::super::{HardCircuit, thinning};
use super::LogicTask;
use crate::Result;
use crate::rng::Key;

/// How often fewer gates are looked for, where some that were found do not hold elsewhere.
const THINNINGS: u64 = 4;

/// Larger grids in each trial of a circuit with fewer gates; it is looked for with one, and those that it gets wrong.
const GROWN: u64 = 3;

/// Batches of the last epochs that it must get right, too.
const BATCHES: u64 = 40;

/// Larger boards that a checkerboard must grow and heal on before it has learned. One shows little: there are
/// circuits that are right in time on one board in five.
const BOARDS: u64 = 32;

/// How often an exact circuit that does not stand elsewhere is looked for again, with what it got wrong there.
const REFINED: u64 = 8;

/// Trials from other starts that a circuit with fewer gates must pass.
const FRESH: u64 = 4;

impl LogicTask {
    /// Looks for an exact circuit near the soft one and decides every gate by it; says whether there was one.
    pub(super) fn decide_all(&mut self, params: &mut [f32], epoch: u64) -> Result<bool> {
        let boards = Key::new(self.seed).purpose("rounding").step(epoch);
        let key = Key::new(self.seed).purpose("drift").step(epoch);
        let mut trial = self.trial(1, boards)?;
        let mut ops: Vec<u8> = params.chunks_exact(GATES).map(hardest).collect();
        for again in 0..=REFINED {
            let key = if again == 0 { key } else { key.among(again) };
            let work = self.rounding_work;
            let rounded = rounding::round(&self.model, params, ops, &trial, work, key);
            if rounded.wrong > 0 {
                break;
            }
            let circuit = HardCircuit::with_ops(&self.model, &rounded.ops);
            if self.stands(&circuit, epoch)? {
                rounding::decide(params, &rounded.ops);
                return Ok(true);
            }
            // Right wherever it was tried, and wrong elsewhere: on with what it gets wrong.
            let Some(more) = self.fails_on(&circuit, boards.among(1 + again))? else {
                break;
            };
            trial.and(more);
            ops = rounded.ops;
        }
        Ok(false)
    }

    /// The same of one with fewer gates than the one that has learned.
    pub(super) fn decide_on_fewer(&mut self, params: &mut [f32], epoch: u64) -> Result<bool> {
        let key = Key::new(self.seed).purpose("thinning").step(epoch);
        let mut trial = self.trial(1, key.among(0))?;
        let mut ops: Vec<u8> = params.chunks_exact(GATES).map(hardest).collect();
        let mut found_some = false;
        for again in 0..THINNINGS {
            let key = key.among(1 + again);
            let found = thinning::thin(&self.model, ops.clone(), &trial, key.among(0));
            // The fewest gates that hold elsewhere, too, and the fewest of all, which may not.
            let mut failed = None;
            for fewer in found.into_iter().rev() {
                if self.holds(&fewer, epoch, key.among(1))? {
                    (ops, found_some) = (fewer, true);
                    break;
                }
                failed.get_or_insert(fewer);
            }
            // On from the first with what the second gets wrong.
            let Some(failed) = failed else { break };
            let failed = HardCircuit::with_ops(&self.model, &failed);
            let Some(more) = self.fails_on(&failed, key.among(2))? else {
                break;
            };
            trial.and(more);
        }
        if found_some {
            rounding::decide(params, &ops);
        }
        Ok(found_some)
    }

    /// What an exact circuit is tried on: all boards of a rule, the one start that there is, or several
    /// random ones; for checkerboards larger grids, damaged, beside.
    fn trial(&self, grown: u64, key: Key) -> Result<Trial> {
        let spec = self.model.spec();
        if self.data.target == Goal::Life {
            return Ok(Trial::of_rule(self.data.rule()));
        }
        let mut trial = Trial::of_pattern(spec, &self.data, key)?;
        if self.data.target == Goal::Checkerboard {
            for again in 0..grown {
                trial.and(Grown::trial(spec, &self.data, key.among(again))?);
            }
        }
        Ok(trial)
    }

    /// Whether a circuit does what it is for from starts that it was not chosen by.
    fn stands_elsewhere(&self, ops: &[u8], key: Key) -> Result<bool> {
        let circuit = HardCircuit::with_ops(&self.model, ops);
        for again in 0..FRESH {
            let trial = self.trial(GROWN, key.among(again))?;
            if trial.wrong_of(&circuit) > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a circuit with fewer gates does all that is asked of it.
    fn holds(&mut self, ops: &[u8], epoch: u64, key: Key) -> Result<bool> {
        Ok(self.right_on_batches(ops, epoch)
            && self.stands_elsewhere(ops, key)?
            && self.stands(&HardCircuit::with_ops(&self.model, ops), epoch)?)
    }

    /// Whether a circuit gets nothing wrong on the batches of the last epochs.
    fn right_on_batches(&mut self, ops: &[u8], epoch: u64) -> bool {
        let program = Program::new(&HardCircuit::with_ops(&self.model, ops));
        let mut right = true;
        // The last one is what it was when it ends.
        for step in epoch.saturating_sub(BATCHES)..epoch {
            self.draw(step);
            self.grid.load(&self.start);
            let [height, width] = self.data.grid;
            for t in 0..self.model.spec().steps {
                let cells = t * height * width..(t + 1) * height * width;
                let fire = self.fire.as_ref().map(|f| &f[cells]);
                self.grid.step(&program, fire);
            }
            right &= self.hard_loss() == 0;
        }
        self.drawn = None;
        right
    }

    /// Whether a circuit in which nothing is wrong does what it is for on other grids, too.
    pub(in super::super) fn stands(&self, circuit: &HardCircuit, epoch: u64) -> Result<bool> {
        if self.data.target != Goal::Checkerboard {
            return Ok(true);
        }
        let key = Key::new(self.seed).purpose("stands").step(epoch);
        let circuit = circuit.fold(true).prune();
        let spec = self.model.spec();
        let size = Grown::size_in_haste(spec);
        for again in 0..BOARDS {
            let grown = Grown::on(size, spec, &self.data, &circuit, key.among(again))?;
            if grown.wrong + grown.healed > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Grids that a circuit gets wrong, of many that it was not chosen by.
    pub(in super::super) fn fails_on(
        &self,
        circuit: &HardCircuit,
        key: Key,
    ) -> Result<Option<Grids>> {
        let stripped = Stripped::new(circuit);
        for again in 0..BOARDS {
            let Trial::Grids(several) = self.trial(1, key.among(again))? else {
                return Ok(None);
            };
            let wrong = |grids: &Grids| grids.wrong(circuit, &stripped) > 0;
            if let Some(grids) = several.into_iter().find(wrong) {
                return Ok(Some(grids));
            }
        }
        Ok(None)
    }
}
