//! Graph networks.

use super::Family;

pub const FAMILY: Family = Family {
    name: "graph",
    train: retrograd::graph::task::train,
    run: None,
    export: None,
};
