# Builds the programs of a Kubernetes cluster from Debian's source package. kube-cluster sources this file, and defines
# the variables and fail().

is_built() { [ -f "$kubernetes" ] && (cd "$bin" && sha256sum --check --quiet --strict SHA256SUMS >/dev/null 2>&1); }

# Downloads the source package from the system's package sources, without changing the system's package lists.
download_source() {
  local sources=$cache/apt/sources.list signer=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$cache/apt/lists/partial"
  apt-get indextargets 'Created-By: Packages' --format '$(ORIGIN) $(COMPONENT) $(REPO_URI) $(RELEASE)' |
    awk -v signer="$signer" '$1 == "Debian" && $2 == "main" {print "deb-src [signed-by=" signer "]", $3, $4, $2}' | sort -u >"$sources"
  [ -s "$sources" ] || fail "apt has no Debian package sources; run apt-get update, or set KUBECONFIG to use an existing cluster"
  local apt=(apt-get -qq -o Dir::Etc::SourceList="$sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$cache/apt/lists")
  "${apt[@]}" update || fail "cannot fetch the package lists; check the network and the system's package sources"
  "${apt[@]}" source --download-only kubernetes || fail "cannot fetch the source package kubernetes; see the output of apt-get above"
  rm -rf "$cache/apt"
}

# The build scripts of Kubernetes take twice as long. They generate code that, except for what openapi.go replaces, is
# already in the source package; they also compile support for clouds and Docker, and link each program separately.
compile() { # PROGRAM; must be called in the directory of the source
  local -x GOPATH=$cache/go GO111MODULE=off GOFLAGS= GOCACHE=$cache/go/cache CGO_ENABLED=0
  # Garbage collection takes a fifth of the compiler's time. With this limit, it runs only for the largest packages.
  local -x GOGC=off GOMEMLIMIT=1GiB
  # The release of reflect2 in the source package corrupts memory under Go 1.18 and later, which causes crashes with custom resources.
  rm -rf "vendor/$reflection"
  cp -r "/usr/share/gocode/src/$reflection" "vendor/$reflection"
  # No node is in a cloud or runs Docker. The build tags omit most of the code for these; without these imports, the rest is omitted too.
  sed -i -E '/_ ".*\/(credentialprovider|cloudinfo)\/(aws|azure|gce|gcp)"|_ ".*\/plugin\/pkg\/client\/auth"/d' \
    cmd/kubelet/app/{plugins,options/globalflags}.go pkg/kubelet/cadvisor/cadvisor_linux.go pkg/kubeapiserver/authenticator/config.go
  mkdir cmd/kubernetes
  cp "$here/kubernetes.go" cmd/kubernetes/
  cp "$here/openapi.go" api/openapi-spec/swagger.json pkg/generated/openapi/
  mkdir -p "$GOPATH/src/k8s.io"
  ln -s "$PWD" "$GOPATH/src/k8s.io/kubernetes"
  cd "$GOPATH/src/k8s.io/kubernetes"
  local version
  version=$(bash -c 'source hack/lib/init.sh && kube::version::ldflags') || return
  go build -tags providerless,dockerless -ldflags "-s -w $version" -o "$1" ./cmd/kubernetes
}

build() {
  mkdir -p "$cache"
  (
    flock 9
    is_built && exit
    cd "$cache"
    rm -rf source go bin bin.partial
    compgen -G 'kubernetes_*.dsc' >/dev/null || download_source
    dpkg-source -x kubernetes_*.dsc source >/dev/null || { rm -f kubernetes_*; fail "the source package is damaged; try again"; }
    mkdir bin.partial
    (cd source && compile "$cache/bin.partial/kubernetes") >build.log 2>&1 9>&- ||
      fail "cannot build Kubernetes; see $cache/build.log"
    (cd bin.partial && sha256sum kubernetes >SHA256SUMS)
    # Files that are deleted before the sync need not be written to the disk.
    rm -rf source go kubernetes_*
    sync bin.partial/*
    mv bin.partial bin
  ) 9>"$cache/lock"
}
