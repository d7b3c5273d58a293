# Five images: `iptables` (the default) for init containers, `native` for those whose node has nf_tables of Linux 5.2 or later,
# `cni` for the node agent, `injector` for the webhook, `stand-in-proxy` in place of Istio's proxy in the quick start.
#
#   make image        builds this file: needs a registry for one base image, and Debian's archive as it was on a day
#   make image-local  builds only the last part, from binaries and a root file system made on this machine
#
# ARCH is what the images are for, amd64 or arm64; by default this machine's. The first part runs on this machine and builds for that one.
#
# The first is made of the same files in both cases, by the same script, image/rootfs.

# The index of all architectures. When you raise it, raise rust-version's compiler and SNAPSHOT with it.
ARG RUST=docker.io/library/rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082

FROM ${RUST} AS base
# Packages come from the archive as it was then, whenever the image is built. They are signed: http is enough.
ARG SNAPSHOT=20261115T000000Z
ARG ARCHIVE=http://snapshot.debian.org/archive
RUN set -eu; rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; \
    by="[check-valid-until=no signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"; \
    echo "deb $by $ARCHIVE/debian/$SNAPSHOT bookworm main" >/etc/apt/sources.list; \
    echo "deb $by $ARCHIVE/debian-security/$SNAPSHOT bookworm-security main" >>/etc/apt/sources.list; \
    apt-get -qq update

FROM base AS unpack
ARG SOURCE_DATE_EPOCH=0
ARG ARCH
COPY image/rootfs /usr/local/bin/rootfs
RUN [ "${ARCH:=$(dpkg --print-architecture)}" = "$(dpkg --print-architecture)" ] || \
        apt-get -qq install -y --no-install-recommends qemu-user-static >/dev/null; \
    rootfs /rootfs "$ARCH"

FROM base AS compile
RUN DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends make >/dev/null
WORKDIR /src
COPY . .
ARG ARCH
RUN make static cni injector relay ${ARCH:+ARCH="$ARCH"} && mkdir /out && \
    cp target/*/release/istio-iptables target/*/release/istio-cni target/*/release/install-cni target/*/release/sidecar-injector target/*/release/relay /out/

FROM scratch AS programs
COPY --from=compile /out/ /
FROM scratch AS rootfs
COPY --from=unpack /rootfs/ /
# What image/build takes out, to build what follows from it.
FROM scratch AS parts
COPY --from=programs / /programs/
COPY --from=rootfs / /rootfs/

# --- the images; image/build reads on from here ----------------------------------------------------------------------

FROM scratch AS injector
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sidecar-injector" \
      org.opencontainers.image.description="Puts istio-init and istio-proxy into pods" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --chmod=755 --from=programs sidecar-injector /sidecar-injector
USER 65532:65532
ENTRYPOINT ["/sidecar-injector"]

# Two static files: the CNI plugin, and the node agent that puts it on the node and reads pods from the API server. The test run of
# ADD writes native nftables; on the node the plugin takes what is there.
FROM scratch AS cni
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="istio-cni" \
      org.opencontainers.image.description="Installs the CNI plugin that redirects pods' traffic to their sidecar proxy" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --chmod=755 --from=programs istio-cni install-cni /usr/local/bin/
ENV PATH=/usr/local/bin
USER 0:0
ENTRYPOINT ["/usr/local/bin/install-cni"]
CMD ["install"]

# Forwards what is captured and logs it: no mTLS, no policy, no control plane. Its path is that of Istio's proxy, for the hooks.
FROM scratch AS stand-in-proxy
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="stand-in-proxy" \
      org.opencontainers.image.description="Stands in for Istio's proxy in a trial: forwards and logs captured connections" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --chmod=755 --from=programs relay /usr/local/bin/pilot-agent
ENV PATH=/usr/local/bin
USER 1337:1337
ENTRYPOINT ["/usr/local/bin/pilot-agent"]

# One static file: rules are native nftables, programmed over netlink.
FROM scratch AS native
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="istio-iptables" \
      org.opencontainers.image.description="Redirects a pod's traffic to its sidecar proxy, by native nftables" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --chmod=755 --from=programs istio-iptables /usr/local/bin/istio-iptables
ENV PATH=/usr/local/bin
USER 0:0
ENTRYPOINT ["/usr/local/bin/istio-iptables"]

FROM scratch AS iptables
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="istio-iptables" \
      org.opencontainers.image.description="Redirects a pod's traffic to its sidecar proxy" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=rootfs / /
COPY --chmod=755 --from=programs istio-iptables /usr/local/bin/istio-iptables
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin
# Rules need root; drop every capability but NET_ADMIN in the pod (docs/privileges.md).
USER 0:0
ENTRYPOINT ["/usr/local/bin/istio-iptables"]
