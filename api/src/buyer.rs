//! A buyer for the demo that pays on a development chain at the push of a button. It is not configured; the executable
//! passes it to the server.

use async_trait::async_trait;
use schemas::{Address, Blockchain, StablecoinContract};

/// Payment that a test customer has to send.
#[derive(Debug, Clone, Copy)]
pub struct TestPayment {
    pub blockchain: Blockchain,
    pub contract: StablecoinContract,
    pub to: Address,
    /// In base units of the contract.
    pub units: u128,
}

/// Pays for test customers.
#[async_trait]
pub trait TestBuyer: Send + Sync {
    /// Sends the payment, which a later block will contain.
    ///
    /// # Errors
    /// Reason why the chain did not accept the payment.
    async fn pay(&self, payment: TestPayment) -> Result<(), String>;
}
