//! Single attacks and single faults, played by script through the whole pipeline: what the endpoints of a chain show, which
//! orders are paid, and that the tables say in the end what the chain itself says.
//!
//! Chain time is the clock of all stages, and passes with each step of a trial. Only the pauses between requests to an
//! endpoint that failed are real, and short.

mod fork;
mod form;
mod index;
mod proof;
mod world;
