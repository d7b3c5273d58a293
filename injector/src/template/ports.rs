//! Functions over ports and interfaces.

use super::{ValueResult, field, sprint_one, str_arg, types};
use gotemplate::{Call, Functions, Str, Type, Value, arg};

use crate::pod::PROXY;

pub(super) fn register(f: &mut Functions) {
    let containers = [Type::Structs(types::CONTAINER)];
    f.add("includeInboundPorts", &containers, None, |_, args| Ok(ports(arg(args, 0), |_| true)));
    f.add("applicationPorts", &containers, None, |_, args| Ok(ports(arg(args, 0), |name| name != PROXY)));
    for name in ["includeInboundPorts", "applicationPorts"] {
        f.limit_reads(name, &["Name", "Ports"]);
    }
    f.add("kubevirtInterfaces", &[Type::Str], None, |_, args| Ok(arg(args, 0).clone()));
    f.add("excludeInterfaces", &[Type::Str], None, |_, args| Ok(arg(args, 0).clone()));
    f.add("excludeInboundPort", &[Type::Any, Type::Str], None, exclude);
}

fn ports<'a>(containers: &Value<'a>, wanted: fn(&str) -> bool) -> Value<'a> {
    let Value::List(containers) = containers else {
        return Value::string("");
    };
    let mut numbers = Vec::new();
    for container in containers.to_vec() {
        let name = field(&container, "Name");
        if !wanted(name.as_str().map_or("", Str::as_str)) {
            continue;
        }
        let Value::List(ports) = field(&container, "Ports") else {
            continue;
        };
        for port in ports.to_vec() {
            let protocol = field(&port, "Protocol");
            if !matches!(protocol.as_str().map_or("", Str::as_str), "UDP" | "SCTP")
                && let Value::Int(number, _) = field(&port, "ContainerPort")
            {
                numbers.push(number.to_string());
            }
        }
    }
    Value::string(numbers.join(","))
}

/// Adds a port to a list of ports unless it is there, written just so. Port 0 and none change nothing.
fn exclude<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let Value::Str(list) = arg(args, 1) else {
        return Ok(Value::Nil);
    };
    let port = sprint_one(call, arg(args, 0))?;
    let port = port.part(port.as_str().trim());
    let is_there = str_arg(args, 1).split(',').any(|p| p == port.as_str());
    if matches!(port.as_str(), "" | "0") || is_there {
        return Ok(Value::Str(list.clone()));
    }
    let mut out = call.text();
    for old in list.as_str().split(',').map(str::trim).filter(|p| !p.is_empty()) {
        out.push(&list.part(old))?;
        out.plain(",")?;
    }
    out.push(&port)?;
    Ok(Value::Str(out.finish()))
}
