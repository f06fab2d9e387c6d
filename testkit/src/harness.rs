//! What the black-box tests share: the built executable as one process or as many, a real EVM node, a
//! merchant that receives, a client that signs with code that is not ours.

mod anvil;
mod client;
mod cluster;
mod independent;
mod merchant;
mod process;
mod tidemark;

use std::future::Future;
use std::time::Duration;

pub use anvil::{Anvil, BUYER, USDT};
pub use client::{Client, now};
pub use cluster::{Cluster, Installation, Member};
pub use independent::{sign_checkout, sign_service, signature_holds};
pub use merchant::{Merchant, Received};
pub use process::{Process, executable};
pub use tidemark::{ADMIN_SECRET, Chain, MERCHANT_SECRET, Tidemark};

/// How often a condition is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long any condition may take to come true: far longer than on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `look` finds something.
///
/// # Panics
/// With `what`, after two minutes.
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let search = async {
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    match tokio::time::timeout(PATIENCE, search).await {
        Ok(found) => found,
        Err(_) => panic!("waited {PATIENCE:?} in vain for {what}"),
    }
}

/// A port that is free now.
///
/// # Panics
/// If the system has none.
#[must_use]
pub fn free_port() -> u16 {
    xtask::free_port().expect("a free port")
}
