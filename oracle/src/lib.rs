//! The processor's duties, stated again independently of it: the model, the ledger and the fold.

pub mod fold;
pub mod history;
pub mod load;
pub mod machine_model;
pub mod verdict;
