//! Single attacks and single faults, played by script through the whole pipeline: the answers of the endpoints, the
//! paid orders, and tables that equal the chain in the end.
//!
//! Chain time is the clock of all stages, and passes with each step of a trial. Only the pauses between requests to an
//! endpoint that failed are real, and short.

mod fork;
mod form;
mod index;
mod proof;
mod world;
