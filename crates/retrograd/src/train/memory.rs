//! What training takes whatever the family: vectors of parameters.

use crate::optim::OptimizerSpec;

/// The bytes of the vectors that are as long as the parameters: these, the best of them, their
/// gradient and the optimizer's state; and, while a checkpoint is written, two copies of parameters
/// and state beside those of the model's file.
pub(crate) fn of_params(params: u64, optimizer: &OptimizerSpec) -> u128 {
    let states = optimizer.state_names().len() as u128;
    let vectors = (3 + states) + 2 * (1 + states) + 2;
    4 * vectors * u128::from(params)
}
