//! The table of rules for volumes.

use super::checks::{
    ANNOTATION_KEYS, FINALIZERS, LABEL, LABEL_KEYS, LABEL_VALUES, MODE, RELATIVE, SELECTOR, SUBDOMAIN, rules,
};
use super::text::*;
use super::{Check, Inner, Row, Rule, Type, containers, disks, projected, relations};
use Check::{Items, Keys, NotEmpty, OneOf, Range, Text};
use Rule::{One, OneSource, Relation, Required};

/// The name of a claim for one pod follows from the pod's.
const UNNAMED: Check = Text(|_| false, "none: a claim of the pod is named after it");
/// The name of a target or an initiator.
const ISCSI_NAME: Check =
    Text(iscsi_name, "iqn.YEAR-MONTH.NAME:NAME, eui. and 16, or naa. and 32 digits or letters");
/// Of a disk; 0 is none.
const PARTITION: Check = Range(0, 255);

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
        "awsElasticBlockStore": [] object(BLOCK_STORE);
        "azureDisk": [] object(AZURE_DISK);
        "azureFile": [] object(AZURE_FILE);
        "cephfs": [] object(CEPH);
        "cinder": [] object(CINDER);
        "fc": [] object(FIBRE_CHANNEL);
        "flexVolume": [] object(FLEX);
        "flocker": [] object(FLOCKER);
        "gcePersistentDisk": [] object(GCE_DISK);
        "gitRepo": [] object(REPOSITORY);
        "glusterfs": [] object(GLUSTER);
        "iscsi": [] object(ISCSI);
        "photonPersistentDisk": [] object(PHOTON);
        "portworxVolume": [] object(PORTWORX);
        "quobyte": [] object(QUOBYTE);
        "rbd": [] object(RBD);
        "scaleIO": [] object(SCALE_IO);
        "storageos": [] object(STORAGE_OS);
        "vsphereVolume": [] object(VSPHERE);
    } [Required(&["name"]), OneSource]
    EMPTY_DIR { "mode": [Range(0, 0o1777)]; } [Relation(relations::size_limit), Relation(containers::medium)]
    HOST_PATH {
        "path": [Text(no_parent, "a path without ..")];
        "type": [OneOf(&["DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"])];
    } [Required(&["path"])]
    CONFIG_MAP { "defaultMode": [MODE]; "items": [] list(ITEM, "path"); } [Required(&["name"])]
    SECRET { "defaultMode": [MODE]; "items": [] list(ITEM, "path"); } [Required(&["secretName"])]
    ITEM { "path": [RELATIVE]; "mode": [MODE]; } [Required(&["key", "path"]), Relation(containers::item_key)]
    PROJECTED { "defaultMode": [MODE]; "sources": [] list(PROJECTION, ""); } [Relation(projected::paths)]
    PROJECTION {
        "configMap": [] object(PROJECTED_MAP);
        "secret": [] object(PROJECTED_MAP);
        "downwardAPI": [] object(DOWNWARD);
        "serviceAccountToken": [] object(TOKEN);
        "clusterTrustBundle": [] object(TRUST_BUNDLE);
        "podCertificate": [] object(POD_CERTIFICATE);
    } [Relation(projected::source)]
    PROJECTED_MAP { "items": [] list(ITEM, "path"); } [Required(&["name"])]
    TOKEN { "path": [RELATIVE]; "expirationSeconds": [Range(600, 1 << 32)]; } [Required(&["path"])]
    TRUST_BUNDLE { "path": [RELATIVE]; } [Required(&["path"]), One(&["name", "signerName"])]
    POD_CERTIFICATE {
        "keyType": [OneOf(&["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"])];
        "maxExpirationSeconds": [Range(3600, 91 * 24 * 3600)];
        "credentialBundlePath": [RELATIVE]; "keyPath": [RELATIVE]; "certificateChainPath": [RELATIVE];
    } [Required(&["signerName", "keyType"]), Relation(projected::certificate)]
    DOWNWARD { "defaultMode": [MODE]; "items": [] list(FILE, "path"); } []
    FILE { "path": [RELATIVE]; "mode": [MODE]; "fieldRef": [] object(FIELD); "resourceFieldRef": [] object(RESOURCE_FIELD); }
        [Required(&["path"]), One(&["fieldRef", "resourceFieldRef"])]
    FIELD { "apiVersion": [OneOf(&["v1"])]; "fieldPath": [Text(file_field, "a field that a file can have, such as metadata.labels")]; } [Required(&["fieldPath"])]
    RESOURCE_FIELD { "resource": [Text(resource_field, "a resource such as limits.cpu or requests.memory")]; }
        [Required(&["resource", "containerName"]), Relation(containers::divisor)]
    CLAIM {} [Required(&["claimName"])]
    NFS { "path": [Text(absolute_path, "an absolute path")]; } [Required(&["server", "path"])]
    CSI { "driver": [Text(csi_driver, "at most 63 letters, digits, - and .")]; "nodePublishSecretRef": [] object(SECRET_NAME); } [Required(&["driver"])]
    SECRET_NAME { "name": [SUBDOMAIN]; } [Required(&["name"])]
    NAMED {} [Required(&["name"])]
    EPHEMERAL { "volumeClaimTemplate": [] object(CLAIM_TEMPLATE); } [Required(&["volumeClaimTemplate"])]
    CLAIM_TEMPLATE { "metadata": [] object(CLAIM_METADATA); "spec": [] object(CLAIM_SPEC); } [Required(&["spec"])]
    CLAIM_METADATA {
        "name": [UNNAMED]; "namespace": [UNNAMED]; "generateName": [UNNAMED];
        "labels": [LABEL_KEYS, LABEL_VALUES]; "annotations": [ANNOTATION_KEYS]; "finalizers": [FINALIZERS];
    } []
    CLAIM_SPEC {
        "accessModes": [Items(access_mode, "ReadOnlyMany, ReadWriteMany, ReadWriteOnce or ReadWriteOncePod")];
        "resources": [] object(CLAIM_RESOURCES);
        "storageClassName": [SUBDOMAIN];
        "volumeAttributesClassName": [SUBDOMAIN];
        "volumeMode": [NotEmpty, OneOf(&["Block", "Filesystem"])];
        "selector": [] object(SELECTOR);
        "dataSource": [] object(DATA_SOURCE);
        "dataSourceRef": [] object(DATA_SOURCE);
    } [Required(&["accessModes", "resources"]), Relation(disks::access_modes), Relation(disks::data_sources)]
    DATA_SOURCE { "apiGroup": [SUBDOMAIN]; "namespace": [LABEL]; } [Required(&["kind", "name"]), Relation(disks::data_source)]
    CLAIM_RESOURCES { "requests": [] object(STORAGE); } [Required(&["requests"])]
    STORAGE {} [Required(&["storage"]), Relation(disks::storage)]
    IMAGE { "pullPolicy": [OneOf(&["Always", "IfNotPresent", "Never"])]; } [Required(&["reference"])]
    BLOCK_STORE { "partition": [PARTITION]; } [Required(&["volumeID"])]
    AZURE_DISK { "kind": [NotEmpty, OneOf(&["Dedicated", "Managed", "Shared"])]; "cachingMode": [NotEmpty, OneOf(&["None", "ReadOnly", "ReadWrite"])]; }
        [Required(&["diskName", "diskURI"]), Relation(disks::azure)]
    AZURE_FILE {} [Required(&["secretName", "shareName"])]
    CEPH {} [Required(&["monitors"])]
    CINDER { "secretRef": [] object(NAMED); } [Required(&["volumeID"])]
    FIBRE_CHANNEL { "lun": [Range(0, 255)]; } [Relation(disks::fibre_channel)]
    FLEX { "options": [Keys(flex_option, "keys outside of kubernetes.io and k8s.io")]; } [Required(&["driver"])]
    FLOCKER { "datasetName": [Text(|name| !name.contains('/'), "a name without /")]; } [Relation(disks::flocker)]
    GCE_DISK { "partition": [PARTITION]; } [Required(&["pdName"])]
    REPOSITORY { "directory": [RELATIVE]; } [Required(&["repository"])]
    GLUSTER {} [Required(&["endpoints", "path"])]
    ISCSI { "iqn": [ISCSI_NAME]; "initiatorName": [NotEmpty, ISCSI_NAME]; "lun": [Range(0, 255)]; }
        [Required(&["targetPortal", "iqn"]), Relation(disks::iscsi)]
    PHOTON {} [Required(&["pdID"])]
    QUOBYTE { "registry": [Text(host_ports, "HOST:PORT, several of them with commas")]; } [Required(&["registry", "volume"])]
    PORTWORX {} [Required(&["volumeID"])]
    RBD {} [Required(&["monitors", "image"])]
    SCALE_IO {} [Required(&["gateway", "system", "volumeName"])]
    STORAGE_OS { "volumeName": [LABEL]; "volumeNamespace": [LABEL]; "secretRef": [] object(NAMED); } [Required(&["volumeName"])]
    VSPHERE {} [Required(&["volumePath"])]
}
