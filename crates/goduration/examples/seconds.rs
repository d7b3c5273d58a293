//! Prints durations in seconds: `seconds 1m30s 250ms`.

fn main() {
    for text in std::env::args().skip(1) {
        match goduration::parse(&text) {
            Some(nanoseconds) => println!("{}", goduration::seconds(nanoseconds)),
            None => eprintln!("{text}: expected a duration such as 1m30s"),
        }
    }
}
