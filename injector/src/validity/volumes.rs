//! The table of rules for volumes.

use super::checks::{LABEL, MODE, RELATIVE, rules};
use super::text::*;
use super::{Check, Inner, Row, Rule, Type, containers, relations};
use Check::{OneOf, Range, Text, Unique};
use Rule::{One, OneSource, Relation, Required};

rules! {
    VOLUME {
        "name": [LABEL];
        "emptyDir": [] object(EMPTY_DIR);
        "hostPath": [] object(HOST_PATH);
        "configMap": [] object(CONFIG_MAP);
        "secret": [] object(SECRET);
        "projected": [] object(PROJECTED);
        "downwardAPI": [] object(DOWNWARD);
        "persistentVolumeClaim": [] object(CLAIM);
        "nfs": [] object(NFS);
        "csi": [] object(CSI);
        "ephemeral": [] object(EPHEMERAL);
        "image": [] object(IMAGE);
    } [Required(&["name"]), OneSource]
    EMPTY_DIR { "mode": [Range(0, 0o1777)]; } [Relation(relations::size_limit), Relation(containers::medium)]
    HOST_PATH {
        "path": [Text(no_parent, "a path without ..")];
        "type": [OneOf(&["DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"])];
    } [Required(&["path"])]
    CONFIG_MAP { "defaultMode": [MODE]; "items": [] list(ITEM, "path"); } [Required(&["name"])]
    SECRET { "defaultMode": [MODE]; "items": [] list(ITEM, "path"); } [Required(&["secretName"])]
    ITEM { "key": [Text(config_key, "letters, digits, -, _ and .")]; "path": [RELATIVE]; "mode": [MODE]; } [Required(&["key", "path"])]
    PROJECTED { "defaultMode": [MODE]; "sources": [] list(PROJECTION, ""); } [Relation(relations::projected_paths)]
    PROJECTION {
        "configMap": [] object(PROJECTED_MAP);
        "secret": [] object(PROJECTED_MAP);
        "downwardAPI": [] object(DOWNWARD);
        "serviceAccountToken": [] object(TOKEN);
        "clusterTrustBundle": [] object(TRUST_BUNDLE);
    } [One(&["clusterTrustBundle", "configMap", "downwardAPI", "podCertificate", "secret", "serviceAccountToken"])]
    PROJECTED_MAP { "items": [] list(ITEM, "path"); } [Required(&["name"])]
    TOKEN { "path": [RELATIVE]; "expirationSeconds": [Range(600, 1 << 32)]; } [Required(&["path"])]
    TRUST_BUNDLE { "path": [RELATIVE]; } [Required(&["path"]), One(&["name", "signerName"])]
    DOWNWARD { "defaultMode": [MODE]; "items": [Unique(&["path"])] list(FILE, "path"); } []
    FILE { "path": [RELATIVE]; "mode": [MODE]; "fieldRef": [] object(FIELD); "resourceFieldRef": [] object(RESOURCE_FIELD); }
        [Required(&["path"]), One(&["fieldRef", "resourceFieldRef"])]
    FIELD { "fieldPath": [Text(file_field, "a field that a file can have, such as metadata.labels")]; } [Required(&["fieldPath"])]
    RESOURCE_FIELD { "resource": [Text(resource_field, "a resource such as limits.cpu or requests.memory")]; }
        [Required(&["resource", "containerName"]), Relation(containers::divisor)]
    CLAIM {} [Required(&["claimName"])]
    NFS { "path": [Text(absolute_path, "an absolute path")]; } [Required(&["server", "path"])]
    CSI {} [Required(&["driver"])]
    EPHEMERAL {} [Required(&["volumeClaimTemplate"])]
    IMAGE { "pullPolicy": [OneOf(&["Always", "IfNotPresent", "Never"])]; } []
}
