//! Space of a run's quota that an upload has from its beginning to its end.

use std::sync::Arc;

use containers::Amount;
use refusal::Refusal;

use crate::account::Account;

/// Bytes by which an upload of unknown length extends its reservation.
const STEP: u64 = 1 << 20;

/// Reserved space, which is released when this value is dropped.
pub struct Reservation {
    account: Arc<Account>,
    amount: Amount,
    copies: u64,
}

impl Reservation {
    /// Reserves space for a file of this size. `copies` is the number of files with its content, including itself, that will count at the
    /// same time.
    pub fn new(account: Arc<Account>, bytes: u64, copies: u64) -> Result<Self, Refusal> {
        let amount = Amount { bytes, files: 1 };
        account.reserve(amount, copies)?;
        Ok(Self { account, amount, copies })
    }

    /// Extends the reservation to at least this size.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Refusal> {
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
        self.account.release(self.amount, self.copies);
    }
}
