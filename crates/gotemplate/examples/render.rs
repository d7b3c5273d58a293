//! Renders a template with JSON data: `render TEMPLATE [JSON]`.

use gotemplate::{Functions, Limits, Options, Template, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = arguments.next().ok_or("usage: render TEMPLATE [JSON]")?;
    let data = serde_json::from_str(arguments.next().as_deref().unwrap_or("{}"))?;
    let mut functions = Functions::builtin();
    functions.add_sprig();
    let template = Template::parse("argument", &text, &functions, Options::default())?;
    println!("{}", template.render(Value::any(&data), Limits::default())?.text);
    Ok(())
}
