//! Prints the tables of this network namespace as they are read.

use std::error::Error;

use nfnetlink::nftables::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let mut client = Client::open()?;
    for name in client.tables()? {
        println!("{:#?}", client.table(&name)?);
    }
    Ok(())
}
