//! Room that an upload has of its run's quota, from its beginning to its end.

use std::sync::Arc;

use containers::Amount;
use refusal::Refusal;

use super::Account;

/// Steps in which an upload of unknown length reserves more, bytes.
const STEP: u64 = 1 << 20;

/// Reserved room. It is given back with this value.
pub(crate) struct Reservation {
    account: Arc<Account>,
    amount: Amount,
    copies: u64,
}

impl Reservation {
    /// Reserves a file of so many bytes. `copies`: the files of its content that will count at one time, itself among them.
    pub(crate) fn new(account: Arc<Account>, bytes: u64, copies: u64) -> Result<Self, Refusal> {
        let amount = Amount { bytes, files: 1 };
        account.reserve(amount, copies)?;
        Ok(Self { account, amount, copies })
    }

    /// Reserves more, unless so many bytes are reserved already.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), Refusal> {
        if bytes <= self.amount.bytes {
            return Ok(());
        }
        let bytes = bytes.next_multiple_of(STEP) - self.amount.bytes;
        self.account.reserve(Amount { bytes, files: 0 }, self.copies)?;
        self.amount.bytes += bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.release(self.amount);
    }
}
