//! Which cluster a client would connect to: `cargo run -p apiclient --example target`.

use apiclient::{ClientError, connect};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ClientError> {
    println!("{}", connect(None, None).await?.target);
    Ok(())
}
