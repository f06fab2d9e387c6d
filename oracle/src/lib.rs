//! An independent statement of the processor's duties: the model, the ledger and the fold.

pub mod fold;
pub mod history;
pub mod load;
pub mod machine_model;
pub mod verdict;
