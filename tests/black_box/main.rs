//! The executable as a merchant, an operator and a consumer of topics see it.

mod chains;
mod consumers;
mod crash;
mod distributed;
mod guide;
mod halts;
mod java;
mod rights;
mod scenario;
mod schemathesis;
mod signature;
mod snippets;
mod webhook_crash;
