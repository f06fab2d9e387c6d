//! Scripted trials of the whole pipeline, each with one attack or one fault of the endpoints. They check the paid
//! orders, and in the end that the tables equal the chain.
//!
//! Chain time is the clock of all stages, and passes with each step of a trial. Only the waits between steps, and the
//! pauses of an endpoint that failed, are real, and short.

mod fork;
mod form;
mod proof;
mod world;
